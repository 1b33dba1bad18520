"""The store in memory: for tests, for one process that needs no durability, and as the contract's plainest reading."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import Future

from lightstream.schemas.clock import NANOS_PER_SECOND, Clock
from lightstream.schemas.records import (
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

from .. import _facts, _shapes
from .._checks import check_id, check_ids, check_limit, check_size, check_timeout
from .._ends import Ends, enough
from .._query import Query
from .._reading import ReadingStore
from .._rollouts_query import exact_value_of_state, value_of_state
from .._workers import WorkerChange, reported
from .log import MemoryLog
from .timer import Timer

__all__ = ["InMemoryLightningStore"]


class InMemoryLightningStore(ReadingStore):
    """A store that forgets all when its process ends. Thread-safe; any number of event loops may use it.

    The life cycle is the one that runs on Kafka: the same facts, folded by the same code, from a log in memory.
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
        self._started_unix_nano = self._clock.now_unix_nano()

    async def close(self) -> None:
        await asyncio.to_thread(self._timer.stop)

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
        """Every fact since the beginning, in order."""
        return self._log.facts()

    # --- rollouts

    async def dequeue_rollout(self, worker_id: str | None = None, *, timeout_s: float = 0.0) -> AttemptedRollout | None:
        taken = await self.dequeue_many_rollouts(limit=1, worker_id=worker_id, timeout_s=timeout_s)
        return taken[0] if taken else None

    async def dequeue_many_rollouts(
        self, *, limit: int = 1, worker_id: str | None = None, timeout_s: float = 0.0
    ) -> list[AttemptedRollout]:
        check_limit(limit)
        check_timeout(timeout_s)
        if worker_id is not None:
            check_id("worker_id", worker_id)
        if limit <= 0:
            return []
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        taken: list[AttemptedRollout] = []
        while len(taken) < limit:
            state = self._start_next(worker_id)
            if state is not None:
                taken.append(await self._handed_out(state, state.attempts[-1], dequeued=True))
                continue
            left = deadline - loop.time()
            if taken or left <= 0 or not await _within(self._log.expect_task(), left):
                break
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
        check_ids("rollout_ids", rollout_ids)
        check_timeout(timeout)
        asked = list(dict.fromkeys(rollout_ids))
        needed = enough(len(asked), count, share)
        over, futures = self._log.expect_ends(asked)
        ends = Ends(futures, needed)
        try:
            ends.add(over)
            await ends.within(timeout)
        finally:
            ends.close()
        return [ends.ended[rollout_id] for rollout_id in rollout_ids if rollout_id in ends.ended]

    async def heartbeat(self, worker: WorkerHeartbeat, attempts: Sequence[tuple[str, str]]) -> None:
        check_id("worker_id", worker.worker_id)
        now = self._clock.now_unix_nano()
        for rollout_id, attempt_id in attempts:
            self._log.write(_facts.heartbeat(rollout_id, attempt_id, worker.worker_id, now))
        with self._lock:
            self._workers[worker.worker_id] = reported(self._workers.get(worker.worker_id), worker)

    # --- resources

    async def get_resources_by_id(self, resources_id: str, *, timeout_s: float = 0.0) -> ResourcesUpdate | None:
        return await self._found_resources(resources_id, timeout_s)

    async def get_latest_resources(self, *, timeout_s: float = 0.0) -> ResourcesUpdate | None:
        return await self._found_resources(None, timeout_s)

    async def _found_resources(self, resources_id: str | None, timeout_s: float) -> ResourcesUpdate | None:
        with self._lock:
            found = self._latest_resources if resources_id is None else self._resources.get(resources_id)
            if found is None and timeout_s > 0:
                future: Future[None] = Future()
                self._awaited_resources.append((resources_id, future))
            else:
                return None if found is None else _shapes.resources_update(found)
        await _within(future, timeout_s)
        return await self._found_resources(resources_id, 0.0)

    # --- what the shared halves ask for

    async def _judge(self, fact: RolloutEvent) -> RolloutState:
        state = self._log.write(fact)
        if state is None:
            raise AssertionError("only heartbeats have no verdict")
        return state

    async def _state_of(self, rollout_id: str) -> RolloutState | None:
        return self._log.state_of(rollout_id)

    def _encoded_spans(self, spans: Sequence[Span]) -> list[bytes]:
        for span in spans:
            check_size(span, self._limits_given.record_bytes_max)
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

    async def _spans_of(self, rollout_id: str) -> list[Span]:
        with self._lock:
            return [span.model_copy(deep=True) for span in self._spans.get(rollout_id, {}).values()]

    @property
    def _limits(self) -> Limits:
        return self._limits_given

    async def _keep_resources(self, record: ResourcesRecord) -> None:
        with self._lock:
            self._resources[record.resources_id] = self._latest_resources = record
            wanted = [f for name, f in self._awaited_resources if name in (None, record.resources_id)]
            self._awaited_resources = [(n, f) for n, f in self._awaited_resources if f not in wanted and not f.done()]
        for future in wanted:
            if future.set_running_or_notify_cancel():
                future.set_result(None)

    async def _known_resources(self, resources_id: str) -> ResourcesRecord | None:
        with self._lock:
            return self._resources.get(resources_id)

    async def _all_resources(self) -> list[ResourcesRecord]:
        with self._lock:
            return list(self._resources.values())

    async def _keep_worker(self, worker_id: str, change: WorkerChange, *, wait: bool = False) -> WorkerHeartbeat:
        with self._lock:
            record = change.applied_to(worker_id, self._workers.get(worker_id))
            self._workers[worker_id] = record
            return record

    async def _worker(self, worker_id: str) -> WorkerHeartbeat | None:
        with self._lock:
            return self._workers.get(worker_id)

    async def _all_workers(self) -> list[WorkerHeartbeat]:
        with self._lock:
            return list(self._workers.values())

    def _start_next(self, worker_id: str | None) -> RolloutState | None:
        """Begin an attempt of the next rollout that waits."""
        now = self._clock.now_unix_nano()
        return self._log.begin_next(lambda rollout_id, n: _facts.attempt_started(rollout_id, n, worker_id, now))


async def _within(future: Future[None], timeout_s: float) -> bool:
    """Wait for ``future``; whether it was done in time."""
    try:
        await asyncio.wait_for(asyncio.wrap_future(future), timeout_s)
    except TimeoutError:
        return False
    return True
