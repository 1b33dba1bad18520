"""The store on Kafka: facts go to ``rollout-events``, verdicts come from ``rollouts``, queries ask the view."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Literal

from lightstream.schemas.clock import Clock
from lightstream.schemas.codec import codec_for
from lightstream.schemas.errors import (
    PublishError,
    RecordError,
    RecordTooLargeError,
    ServiceUnavailableError,
    StoreError,
)
from lightstream.schemas.kafka import KafkaPublisher, Position
from lightstream.schemas.records import (
    Record,
    ResourcesRecord,
    RolloutEvent,
    RolloutState,
    VerdictOutcome,
    WorkerHeartbeat,
    WorkerStatus,
)
from lightstream.schemas.settings import Settings
from lightstream.schemas.topics import RESOURCES, ROLLOUT_EVENTS, ROLLOUTS, SPANS, WORKERS, Topic
from lightstream.schemas.types import (
    AttemptedRollout,
    LightningStoreCapabilities,
    LightningStoreStatistics,
    PaginatedResult,
    ResourcesUpdate,
    Rollout,
    RolloutStatus,
    Span,
)

from .. import _facts, _shapes
from .._reading import ReadingStore, ended_in_time, enough
from .._rollouts_query import rollouts_query
from .._workers import WorkerChange, reported
from . import sql
from .follower import Follower
from .queue import QueuedTask, TaskQueue
from .rows import state_of_row
from .spans import span_of_row, span_record

if TYPE_CHECKING:
    from ...client import QueryResult, ViewClient

__all__ = ["KafkaLightningStore"]

LINGER_MS = 1.0
"""Facts are small and waited for; a millisecond lets a burst share a batch."""

SPAN_IDS_KEPT_MAX = 100_000
"""Of the spans written last, to tell repeats (about 20 MB); the view collapses those that come later still."""


WAITING_THREADS = 8
"""Queries and waits for resources at once; more wait for their turn."""

STATISTICS_SQL = """
SELECT
    (SELECT count(*) FROM rollouts), (SELECT coalesce(sum(attempt_count), 0) FROM rollouts),
    (SELECT count(*) FROM spans)
"""

IDLE_REPORT_INTERVAL_S = 10.0
"""How often a worker that finds nothing again and again is written down as having asked."""


class KafkaLightningStore(ReadingStore):
    """A store for processes that reach Kafka.

    Each write waits for the life cycle's verdict, up to ``settings.publish_timeout_s`` seconds, so a restart of the
    broker or of the worker in between costs time and nothing else. Queries ask the view, which first catches up with
    what this store has written or was told; writing and dequeuing need no view.

    Args:
        settings: names the cluster and the topics.
    """

    def __init__(self, settings: Settings, *, clock: Clock | None = None) -> None:
        super().__init__(clock)
        self._settings = settings
        self._codec = codec_for(settings)
        self._publisher = KafkaPublisher(settings, codec=self._codec, linger_ms=LINGER_MS)
        self._follower = Follower(settings, self._codec)
        self._queue: TaskQueue | None = None
        self._lock = threading.Lock()
        self._span_ids: OrderedDict[tuple[str, str, str], None] = OrderedDict()
        self._spans_at: dict[int, int] = {}
        self._view: ViewClient | None = None
        self._started_unix_nano = self._clock.now_unix_nano()
        self._taking = ThreadPoolExecutor(1, thread_name_prefix="lightstream-dequeue")
        self._waiting = ThreadPoolExecutor(WAITING_THREADS, thread_name_prefix="lightstream-store")

    async def start(self) -> None:
        """Connect. Call once, before anything else.

        Raises:
            ServiceUnavailableError: Kafka does not answer or lacks our topics.
        """
        await asyncio.to_thread(self._follower.start)

    @property
    def capabilities(self) -> LightningStoreCapabilities:
        return LightningStoreCapabilities(thread_safe=True, async_safe=True, zero_copy=False, otlp_traces=False)

    async def dequeue_rollout(self, worker_id: str | None = None, *, timeout_s: float = 0.0) -> AttemptedRollout | None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            taken = await loop.run_in_executor(self._taking, self._take_until, deadline)
            if taken is None:
                if loop.time() >= deadline:
                    await self._found_nothing(worker_id)
                    return None
                continue
            if taken.task is None:
                self._task_queue().settle(taken)
                continue
            rollout_id = taken.task.rollout.rollout_id
            now = self._clock.now_unix_nano()
            state = await self._judge(_facts.attempt_started(rollout_id, taken.task.attempt_sequence, worker_id, now))
            self._task_queue().settle(taken)
            if state.verdict.outcome is VerdictOutcome.APPLIED:
                return await self._handed_out(state, state.attempts[-1], dequeued=True)

    async def dequeue_many_rollouts(
        self, *, limit: int = 1, worker_id: str | None = None, timeout_s: float = 0.0
    ) -> list[AttemptedRollout]:
        taken: list[AttemptedRollout] = []
        while len(taken) < limit:
            rollout = await self.dequeue_rollout(worker_id, timeout_s=0.0 if taken else timeout_s)
            if rollout is None:
                break
            taken.append(rollout)
        return taken

    async def _found_nothing(self, worker_id: str | None) -> None:
        if worker_id is None:
            return
        known, now = self._follower.worker(worker_id), self._clock.now_unix_nano()
        asked_s = (now - (known.dequeued_unix_nano or 0)) / 1e9 if known is not None else IDLE_REPORT_INTERVAL_S
        if known is None or known.status is not WorkerStatus.IDLE or asked_s >= IDLE_REPORT_INTERVAL_S:
            await self._keep_worker(worker_id, WorkerChange.found_nothing(known, now))

    def _take_until(self, deadline_s: float) -> QueuedTask | None:
        """Runs in the one taking thread, where a call may have waited behind others: their time counts as its own.

        ``deadline_s`` is on the monotonic clock, as event loops count.
        """
        return self._task_queue().take(max(0.0, deadline_s - time.monotonic()))

    async def heartbeat(self, worker: WorkerHeartbeat, attempts: Sequence[tuple[str, str]]) -> None:
        now = self._clock.now_unix_nano()
        facts = [_facts.heartbeat(rollout_id, attempt_id, worker.worker_id, now) for rollout_id, attempt_id in attempts]
        futures = [self._publisher.publish(ROLLOUT_EVENTS, fact.rollout_id, fact) for fact in facts]
        told = reported(self._follower.worker(worker.worker_id), worker)
        futures.append(self._publisher.publish(WORKERS, worker.worker_id, told))
        await asyncio.gather(*map(asyncio.wrap_future, futures))
        self._follower.take_over(told)

    async def get_resources_by_id(self, resources_id: str, *, timeout_s: float = 0.0) -> ResourcesUpdate | None:
        return await self._resources(resources_id, timeout_s)

    async def get_latest_resources(self, *, timeout_s: float = 0.0) -> ResourcesUpdate | None:
        return await self._resources(None, timeout_s)

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._taking.shutdown(wait=True, cancel_futures=True)
        if self._queue is not None:
            self._queue.close()
        self._publisher.close()
        self._follower.stop()
        if self._view is not None:
            self._view.close()
        self._waiting.shutdown(wait=True, cancel_futures=True)

    def _task_queue(self) -> TaskQueue:
        """The queue, joined when the first task is asked for: a store that only enqueues takes no partitions."""
        with self._lock:
            if self._queue is None:
                self._queue = TaskQueue(self._settings, self._codec)
            return self._queue

    def _view_client(self) -> ViewClient:
        from ...client import ViewClient  # a Runner asks the view nothing and needs no HTTP client

        with self._lock:
            if self._view is None:
                self._view = ViewClient(self._settings)
            return self._view

    async def _judge(self, fact: RolloutEvent) -> RolloutState:
        """Write a fact and return the state that carries its verdict.

        Raises:
            ServiceUnavailableError: no verdict in time; the fact is durable and will be judged later.
            StoreError: no record can hold the fact; nothing was written.
        """
        verdict = self._follower.expect_verdict(fact.rollout_id, fact.event_id)
        try:
            await self._durable(ROLLOUT_EVENTS, fact.rollout_id, fact)
            async with asyncio.timeout(self._settings.publish_timeout_s):
                return await asyncio.wrap_future(verdict)
        except TimeoutError as error:
            raise ServiceUnavailableError(
                f"no verdict on {fact.event_id} within {self._settings.publish_timeout_s} s.",
                next_step="Does the worker run? `lightstream status` tells; `lightstream worker` starts it.",
            ) from error
        finally:
            verdict.cancel()

    async def _durable(self, topic: Topic, key: str, record: Record) -> Position:
        """Write one record.

        Raises:
            StoreError: it is too large, or holds what Avro cannot say; nothing was written.
            PublishError: it did not become durable.
        """
        try:
            future = self._publisher.publish(topic, key, record)
        except (RecordTooLargeError, RecordError) as error:
            raise StoreError(str(error)) from error
        return await asyncio.wrap_future(future)

    async def _keep_spans(self, spans: Sequence[Span]) -> list[Span]:
        new = self._not_yet_written(spans)
        try:
            places = await asyncio.gather(*(self._durable(SPANS, span.rollout_id, span_record(span)) for span in new))
        except (PublishError, StoreError):
            self._forget_spans(new)
            raise
        for place in places:
            self._wrote_span(place)
        return new

    def _forget_spans(self, spans: Sequence[Span]) -> None:
        """They may not have become durable: whoever tries again is no repeat."""
        with self._lock:
            for span in spans:
                self._span_ids.pop((span.rollout_id, span.attempt_id, span.span_id), None)

    def _not_yet_written(self, spans: Sequence[Span]) -> list[Span]:
        new: list[Span] = []
        with self._lock:
            for span in spans:
                key = (span.rollout_id, span.attempt_id, span.span_id)
                if key not in self._span_ids:
                    self._span_ids[key] = None
                    new.append(span)
            while len(self._span_ids) > SPAN_IDS_KEPT_MAX:
                self._span_ids.popitem(last=False)
        return new

    def _wrote_span(self, place: Position) -> None:
        with self._lock:
            self._spans_at[place.partition] = max(place.offset, self._spans_at.get(place.partition, -1))

    async def _keep_resources(self, record: ResourcesRecord) -> None:
        await self._durable(RESOURCES, record.resources_id, record)
        self._follower.take_over(record)

    async def _keep_worker(self, worker_id: str, change: WorkerChange) -> WorkerHeartbeat:
        record = change.applied_to(worker_id, self._follower.worker(worker_id))
        await self._durable(WORKERS, worker_id, record)
        self._follower.take_over(record)
        return record

    async def _resources(self, resources_id: str | None, timeout_s: float) -> ResourcesUpdate | None:
        found = self._follower.resources(resources_id, 0.0)
        if found is None and timeout_s > 0:
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(self._waiting, self._follower.resources, resources_id, timeout_s)
        return None if found is None else _shapes.resources_update(found)

    async def statistics(self) -> LightningStoreStatistics:
        rollouts, attempts, spans = (await self._ask(STATISTICS_SQL)).rows[0]
        return LightningStoreStatistics(
            name=type(self).__name__,
            total_rollouts=rollouts,
            total_attempts=attempts,
            total_spans=spans,
            total_resources=len(self._follower.all_resources()),
            total_workers=len(self._follower.workers()),
            uptime=(self._clock.now_unix_nano() - self._started_unix_nano) / 1e9,
        )

    async def query_rollouts(
        self,
        *,
        status_in: Sequence[RolloutStatus] | None = None,
        rollout_id_in: Sequence[str] | None = None,
        rollout_id_contains: str | None = None,
        filter_logic: Literal["and", "or"] = "and",
        sort_by: str | None = None,
        sort_order: Literal["asc", "desc"] = "asc",
        limit: int = -1,
        offset: int = 0,
        status: Sequence[RolloutStatus] | None = None,
        rollout_ids: Sequence[str] | None = None,
        rollout_id_prefix: str | None = None,
        started_after: float | None = None,
        started_before: float | None = None,
    ) -> PaginatedResult[Rollout]:
        query = rollouts_query(
            status_in=status_in if status_in is not None else status,
            rollout_id_in=rollout_id_in if rollout_id_in is not None else rollout_ids,
            rollout_id_contains=rollout_id_contains,
            rollout_id_prefix=rollout_id_prefix,
            started_after=started_after,
            started_before=started_before,
            filter_logic=filter_logic,
            sort_by=sort_by,
            sort_order=sort_order,
            limit=limit,
            offset=offset,
        )
        page = await self._ask(sql.page_sql(query))
        total = offset + len(page.rows)
        if (limit >= 0 and len(page.rows) == limit) or not page.rows:
            total = int((await self._ask(sql.count_sql(query))).scalar())
        items = [_shapes.rollout_as_it_stands(state_of_row(row)) for row in page.dicts()]
        return PaginatedResult[Rollout].model_construct(items=items, limit=limit, offset=offset, total=total)

    async def wait_for_rollouts(
        self,
        *,
        rollout_ids: Sequence[str],
        timeout: float | None = None,  # noqa: ASYNC109  # the interface's name
        count: int | None = None,
        share: float | None = None,
    ) -> list[Rollout]:
        asked = list(dict.fromkeys(rollout_ids))
        needed = enough(len(asked), count, share)
        if not asked:
            return []
        waiting = {rollout_id: asyncio.wrap_future(self._follower.expect_terminal(rollout_id)) for rollout_id in asked}
        try:
            # What the follower has passed already it will not tell again: the view must know of it.
            states = await self._states_of(asked, self._follower.read_up_to())
            ended = {rollout_id: state for rollout_id, state in states.items() if state.status.is_terminal}
            left = {
                rollout_id: future
                for rollout_id, future in waiting.items()
                if rollout_id in states.keys() - ended.keys()
            }
            await ended_in_time(left, ended, needed, timeout)
        finally:
            for future in waiting.values():
                future.cancel()
        return [_shapes.rollout_as_it_stands(ended[rollout_id]) for rollout_id in rollout_ids if rollout_id in ended]

    async def _state_of(self, rollout_id: str) -> RolloutState | None:
        return (await self._states_of([rollout_id])).get(rollout_id)

    async def _states_of(
        self, rollout_ids: Sequence[str], at_least: dict[int, int] | None = None
    ) -> dict[str, RolloutState]:
        answer = await self._ask(sql.states_sql(rollout_ids), at_least)
        return {row["rollout_id"]: state_of_row(row) for row in answer.dicts()}

    async def _spans_of(self, rollout_id: str) -> list[Span]:
        return [span_of_row(row) for row in (await self._ask(sql.spans_sql(rollout_id))).dicts()]

    async def _all_resources(self) -> list[ResourcesRecord]:
        return self._follower.all_resources()

    async def _all_workers(self) -> list[WorkerHeartbeat]:
        return self._follower.workers()

    async def _worker(self, worker_id: str) -> WorkerHeartbeat | None:
        return self._follower.worker(worker_id)

    def positions(self) -> dict[str, dict[int, int]]:
        """What this store's reads reflect at least: topic -> partition -> offset. For :meth:`see`, in any process."""
        with self._lock:
            return {ROLLOUTS.name: self._follower.answered_at(), SPANS.name: dict(self._spans_at)}

    def see(self, positions: dict[str, dict[int, int]]) -> None:
        """From now on, reads reflect these positions too: those of another store, which it has handed over."""
        self._follower.answered(positions.get(ROLLOUTS.name, {}))
        for partition, offset in positions.get(SPANS.name, {}).items():
            self._wrote_span(Position(SPANS.name, partition, offset))

    async def _ask(self, statement: str, rollouts_at_least: dict[int, int] | None = None) -> QueryResult:
        """Ask the view, once it reflects what this store knows of.

        Raises:
            ServiceUnavailableError: it does not answer, or does not catch up.
            StoreError: the answer is larger than an answer may be.
        """
        wanted = self.positions()
        for partition, offset in (rollouts_at_least or {}).items():
            wanted[ROLLOUTS.name][partition] = max(offset, wanted[ROLLOUTS.name].get(partition, -1))
        loop = asyncio.get_running_loop()
        answer = await loop.run_in_executor(self._waiting, self._view_client().query, statement, wanted)
        if answer.truncated:
            raise StoreError(f"the answer has more than {len(answer.rows):,} rows; ask for pages, by limit and offset")
        return answer
