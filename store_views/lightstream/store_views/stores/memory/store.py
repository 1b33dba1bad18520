"""The store in memory: for tests, for one process that needs no durability, and as the contract's plainest reading."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress

from lightstream.runtime.clock import NANOS_PER_SECOND, Clock
from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.schemas.records import (
    ANY_RUN,
    ResourcesRecord,
    RolloutEvent,
    RolloutState,
    WorkerHeartbeat,
)
from lightstream.schemas.types import (
    AttemptedRollout,
    LightningStoreCapabilities,
    LightningStoreStatistics,
    ResourcesUpdate,
    Rollout,
    Span,
)
from lightstream.stream_processors.core.lifecycle import Limits

from .. import _events, _shapes
from .._checks import (
    check_dequeue,
    check_report,
    check_size,
    check_text,
    check_timeout,
    checked_attempts,
    checked_ids,
)
from .._ends import Ends, enough
from .._logged import NextVersion
from .._loop_calls import future_in
from .._query import Query
from .._reading import ReadingStore
from .._rollouts_query import exact_value_of_state, value_of_state
from .._workers import WorkerChange, reported
from .log import MemoryLog
from .timer import Timer

__all__ = ["InMemoryLightningStore"]


class InMemoryLightningStore(ReadingStore):
    """A store that forgets all when its process ends. Thread-safe; any number of event loops may use it.

    The life cycle is the one that runs on Kafka: the same events, folded by the same code, from a log in memory.
    Nothing is evicted: memory grows with what is stored.

    Args:
        limits: deadlines of rollouts that name none, and the largest rollout.
        clock: of everything that has a time; deadlines fire by it.
    """

    def __init__(self, *, limits: Limits | None = None, clock: Clock | None = None) -> None:
        super().__init__(clock)
        self._limits_given = limits or Limits()
        self._log = MemoryLog(self._limits_given, self._clock)
        self._timer = Timer(self._log, self._clock)
        self._lock = threading.RLock()
        self._spans: dict[str, dict[tuple[str, str], Span]] = {}
        self._span_count = 0
        self._resources: dict[str, ResourcesRecord] = {}
        self._latest_resources: ResourcesRecord | None = None
        self._awaited_resources: list[tuple[str | None, Future[None]]] = []
        self._workers: dict[str, WorkerHeartbeat] = {}
        self._closed = False
        self._started_unix_nano = self._clock.now_unix_nano()

    async def close(self) -> None:
        await asyncio.to_thread(self._timer.stop)
        self._log.close()
        with self._lock:
            self._closed = True
            awaited, self._awaited_resources = self._awaited_resources, []
        for _, future in awaited:
            future.set_result(None)

    @property
    def capabilities(self) -> LightningStoreCapabilities:
        return LightningStoreCapabilities(thread_safe=True, async_safe=True, zero_copy=False, otlp_traces=False)

    async def statistics(self) -> LightningStoreStatistics:
        states = self._log.states()
        with self._lock:
            return LightningStoreStatistics(
                name=type(self).__name__,
                total_rollouts=len(states),
                total_attempts=sum(len(state.attempts) for state in states),
                total_spans=self._span_count,
                total_resources=len(self._resources),
                total_workers=len(self._workers),
                uptime=(self._clock.now_unix_nano() - self._started_unix_nano) / NANOS_PER_SECOND,
            )

    def history(self) -> list[RolloutEvent]:
        """Every event since the beginning, in order."""
        return self._log.events()

    # --- rollouts

    async def dequeue_many_rollouts(
        self, *, limit: int = 1, worker_id: str | None = None, timeout_s: float = 0.0, run_id: str = ANY_RUN
    ) -> list[AttemptedRollout]:
        check_dequeue(limit, timeout_s, worker_id, run_id)
        if limit <= 0:
            return []
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        taken: list[AttemptedRollout] = []
        while len(taken) < limit:
            state = self._start_next(worker_id, run_id)
            if state is not None:
                taken.append(await self._handed_out(state, state.attempts[-1], dequeued=True))
                continue
            left = deadline - loop.time()
            if taken or left <= 0:
                break
            await self._task_comes(left, run_id)  # and the queue is looked at again, even if the time is over
        if not taken and worker_id is not None:
            with self._lock:
                change = WorkerChange.found_nothing(self._workers.get(worker_id), self._clock.now_unix_nano())
            await self._keep_worker(worker_id, change)
        return taken

    async def _page_of(self, query: Query) -> tuple[list[RolloutState], int]:
        page = query.page(self._log.states(), value_of_state, exact_value_of_state)
        return list(page.items), page.total

    async def wait_for_rollouts(
        self,
        *,
        rollout_ids: Sequence[str],
        timeout: float | None = None,  # noqa: ASYNC109  # the interface's name
        count: int | None = None,
        share: float | None = None,
    ) -> list[Rollout]:
        wanted = checked_ids("rollout_ids", rollout_ids)
        check_timeout("timeout", timeout, may_be_none=True)
        asked = list(dict.fromkeys(wanted))
        needed = enough(len(asked), count, share)
        over, futures = self._log.expect_ends(asked)
        ends = Ends(futures, needed)
        try:
            ends.add(over)
            await ends.within(timeout)
        finally:
            ends.close()
        return [ends.ended[rollout_id] for rollout_id in wanted if rollout_id in ends.ended]

    async def heartbeat(self, worker: WorkerHeartbeat, attempts: Sequence[tuple[str, str]]) -> None:
        check_report(worker)
        self._check_size_of(worker)
        named = checked_attempts("attempts", attempts)
        now = self._clock.now_unix_nano()
        for rollout_id, attempt_id in named:
            self._log.write(_events.heartbeat(rollout_id, attempt_id, worker.worker_id, now))
        with self._lock:
            self._workers[worker.worker_id] = reported(self._workers.get(worker.worker_id), worker)

    # --- resources

    async def get_resources_by_id(self, resources_id: str, *, timeout_s: float = 0.0) -> ResourcesUpdate | None:
        check_text("resources_id", resources_id)
        return await self._found_resources(resources_id, timeout_s)

    async def get_latest_resources(self, *, timeout_s: float = 0.0) -> ResourcesUpdate | None:
        return await self._found_resources(None, timeout_s)

    async def _found_resources(self, resources_id: str | None, timeout_s: float) -> ResourcesUpdate | None:
        check_timeout("timeout_s", timeout_s)
        awaited = (resources_id, Future[None]())
        with self._lock:
            found = self._resources_now(resources_id)
            if found is not None or timeout_s <= 0 or self._closed:
                return found
            self._awaited_resources.append(awaited)
        try:
            await _until_done(awaited[1], timeout_s)
        finally:
            with self._lock, suppress(ValueError):  # not there: done
                self._awaited_resources.remove(awaited)
        with self._lock:
            return self._resources_now(resources_id)

    def _resources_now(self, resources_id: str | None) -> ResourcesUpdate | None:
        found = self._latest_resources if resources_id is None else self._resources.get(resources_id)
        return None if found is None else _shapes.resources_update(found)

    # --- what the shared halves ask for

    async def _judge(self, event: RolloutEvent) -> RolloutState:
        state = self._log.write(event)
        if state is None:
            raise AssertionError("only heartbeats have no verdict")
        return state

    async def _state_of(self, rollout_id: str) -> RolloutState | None:
        return self._log.state_of(rollout_id)

    def _encoded_spans(self, spans: Sequence[Span]) -> list[bytes]:
        for span in spans:
            check_size(
                f"span {span.span_id!r}", span.model_dump_json(fallback=str), self._limits_given.record_bytes_max
            )
        return []

    async def _keep_spans(self, spans: Sequence[Span], encoded: Sequence[bytes]) -> list[Span]:
        new: list[Span] = []
        with self._lock:
            for span in spans:
                kept = self._spans.setdefault(span.rollout_id, {})
                if kept.setdefault((span.attempt_id, span.span_id), own := span.model_copy(deep=True)) is own:
                    new.append(span)
            self._span_count += len(new)
        return new

    async def _page_of_spans(self, rollout_id: str, attempt_id: str | None, query: Query) -> tuple[list[Span], int]:
        with self._lock:
            kept = list(self._spans.get(rollout_id, {}).values())
        page = query.page((span for span in kept if attempt_id in (None, span.attempt_id)), getattr)
        return [span.model_copy(deep=True) for span in page], page.total

    @property
    def _limits(self) -> Limits:
        return self._limits_given

    async def _keep_resources(self, resources_id: str, make: NextVersion) -> ResourcesRecord:
        with self._lock:
            known = self._resources.get(resources_id)
            record = make(known)
            if record is known:
                return record
            self._resources[resources_id] = self._latest_resources = record
            wanted = [future for name, future in self._awaited_resources if name in (None, resources_id)]
            self._awaited_resources = [(name, f) for name, f in self._awaited_resources if f not in wanted]
        for future in wanted:
            future.set_result(None)
        return record

    async def _all_resources(self) -> list[ResourcesRecord]:
        with self._lock:
            return list(self._resources.values())

    async def _keep_worker(self, worker_id: str, change: WorkerChange, *, wait: bool = False) -> WorkerHeartbeat:
        with self._lock:
            record = change.applied_to(worker_id, self._workers.get(worker_id))
            self._check_size_of(record)
            self._workers[worker_id] = record
            return record

    def _check_size_of(self, worker: WorkerHeartbeat) -> None:
        what = f"worker {worker.worker_id!r}"
        check_size(what, worker.stats_json or "", self._limits_given.record_bytes_max)

    async def _worker(self, worker_id: str) -> WorkerHeartbeat | None:
        with self._lock:
            return self._workers.get(worker_id)

    async def _all_workers(self) -> list[WorkerHeartbeat]:
        with self._lock:
            return list(self._workers.values())

    async def _task_comes(self, timeout_s: float, run_id: str) -> None:
        """Wait until something may have been put in the queue, or the time is over.

        Raises:
            ServiceUnavailableError: this was closed.
        """
        future, told = self._log.expect_task(run_id), False
        try:
            await _until_done(future, timeout_s)
            if future.cancelled():
                raise ServiceUnavailableError("the store was closed.")
            told = future.done()
        finally:
            if not told:
                self._log.leave(future, run_id)

    def _start_next(self, worker_id: str | None, run_id: str) -> RolloutState | None:
        """Begin an attempt of the next rollout that waits."""
        now = self._clock.now_unix_nano()
        return self._log.begin_next(
            lambda rollout_id, n: _events.attempt_started(rollout_id, n, worker_id, now), run_id
        )


async def _until_done(future: Future[None], timeout_s: float) -> None:
    """Wait for ``future``, which goes on if the time is over or the wait is cancelled."""
    await asyncio.wait([future_in(asyncio.get_running_loop(), future)], timeout=timeout_s)
