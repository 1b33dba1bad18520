"""The log on Kafka: events go to ``rollout-events``, results come from ``rollouts``, queries ask the view."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from lightstream.runtime.clock import NANOS_PER_SECOND, Clock
from lightstream.runtime.kafka import KafkaPublisher, Position
from lightstream.runtime.loop_thread import LoopThread
from lightstream.runtime.redaction import Redaction
from lightstream.runtime.schema_registry import codec_for
from lightstream.runtime.services import find, otlp_traces_url
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import (
    BackpressureError,
    LightstreamError,
    RecordError,
    RecordTooLargeError,
    ServiceUnavailableError,
    StoreError,
)
from lightstream.schemas.records import (
    AttemptState,
    Record,
    ResourcesRecord,
    RolloutEvent,
    RolloutState,
    RolloutStatus,
    WorkerHeartbeat,
    WorkerStatus,
)
from lightstream.schemas.topics import RESOURCES, ROLLOUT_EVENTS, ROLLOUTS, SPANS, Topic
from lightstream.schemas.types import LightningStoreStatistics, LogPositions, Span
from lightstream.stream_processors.core.lifecycle import Limits

from .. import events as events_of
from ..log import Log, NextVersion, NextWorker
from ..queries import Query
from . import rollouts_sql, spans_sql
from .dispatcher import Dispatcher, LeaseRequest
from .offsets import EndOffsets, ends_in_kafka, log_id
from .query_sql import Parameters, Statement
from .resources import ResourceVersions, ResourceWriter
from .rows import attempts_of_row, resources_of_row, state_of_row
from .span_record import span_of_row, span_record
from .spans import SpanWriter
from .tail import LogTail
from .view import Offsets, ViewReader
from .worker_registry import FLUSH_INTERVAL_S, WorkerRegistry
from .writer import BUFFER_PAUSE_S, EventWriter

logger = logging.getLogger(__name__)

T = TypeVar("T")

LINGER_MS = 0.0
"""Events are small and waited for, and those of one turn of the loop go out together: any linger, however short, costs
1.2 ms. Such batches gain little by compression, and zstd costs 40 microseconds each in the writer alone: all but spans
go by lz4."""

CATCH_UP_S = 10.0
"""A request for work waits so long to read what its caller has seen at another store (``see``)."""

REQUEUE_S = 2.0
"""A store that closes waits so long for answers, to requeue what they bring."""

LEASED_AT_ONCE_MAX = 256
"""Rollouts that one call asks for at a time: a caller may name any limit, and each takes a kilobyte or two."""

IDLE_REPORT_INTERVAL_S = 10.0
"""Between records of a worker that finds nothing again and again."""

STATUSES_AT_ONCE_MAX = 10_000
"""Rollouts whose status is asked for at once: two short columns each."""

STATISTICS_SQL = """
SELECT
    (SELECT count(*) FROM rollouts), (SELECT coalesce(sum(attempt_count), 0) FROM rollouts),
    (SELECT count(*) FROM spans)
"""


class KafkaLog(Log):
    """Writing and leasing need Kafka and no view; queries read the view, which first catches up with local writes.

    Args:
        loop: of this.
    """

    def __init__(self, settings: Settings, clock: Clock, loop: LoopThread) -> None:
        self.limits = Limits.of(settings)
        self._settings = settings
        self._clock = clock
        self._loop = loop
        codec = codec_for(settings)
        self._redact = Redaction(settings)
        self._publisher = KafkaPublisher(settings, codec=codec, linger_ms=LINGER_MS, compression="lz4")
        self._span_publisher = KafkaPublisher(settings, codec=codec, linger_ms=LINGER_MS)
        self._resources = ResourceVersions(self._older_resources)
        self._resource_writer = ResourceWriter(self._write_resources, self._resources, settings.publish_timeout_s)
        self._workers = WorkerRegistry(self._publisher, loop.post)
        self._span_writer = SpanWriter(partial(self._handed_over, SPANS), loop.post)
        self._tail = LogTail(settings, codec, self._resources, self._workers)
        self._events = EventWriter(self._publisher, self._tail, loop, settings.publish_timeout_s)
        self._dispatcher: Dispatcher | None = None
        self._view = ViewReader(settings)
        self._end_offsets = EndOffsets(ends_in_kafka(settings))
        self._checking = asyncio.Lock()
        self._flushing: asyncio.Task[None] | None = None
        self._log_id = ""
        self._started_unix_nano = clock.now_unix_nano()

    async def start(self) -> None:
        """Connect.

        Raises:
            ServiceUnavailableError: Kafka does not answer or lacks our topics.
        """
        await self._tail.start()
        self._log_id = await asyncio.to_thread(log_id, self._settings)
        self._dispatcher = Dispatcher(
            self._publisher,
            self._clock,
            self._tail.partitions(),
            answer_timeout_s=self._settings.publish_timeout_s,
            requeue=self._requeue,
            post=self._loop.post,
        )
        self._tail.attach(self._dispatcher)
        self._flushing = asyncio.create_task(self._flush_workers())

    async def close(self) -> None:
        if self._dispatcher is not None:
            await self._dispatcher.close(REQUEUE_S)
        if self._flushing is not None:
            self._flushing.cancel()
        self._workers.flush()
        await asyncio.to_thread(self._publisher.close)
        await asyncio.to_thread(self._span_publisher.close)
        await self._tail.stop()
        await self._view.close()

    def unready(self) -> str | None:
        """Say which version of Lightstream is needed to read the records that were passed over; ``None`` if there are
        none."""
        return self._tail.unready()

    def takes_otlp_traces(self) -> bool:
        return self._settings.gateway_url is not None or find(self._settings, "gateway") is not None

    def otlp_traces_endpoint(self) -> str:
        """URL of the OTLP gateway's traces, which names rollout and attempt in the resource or anywhere else.

        Raises:
            ServiceUnavailableError: no gateway is named or runs here.
        """
        return otlp_traces_url(self._settings)

    async def statistics(self) -> LightningStoreStatistics:
        answer = await self._view.ask(Statement(STATISTICS_SQL, Parameters()), self._known())
        rollouts, attempts, spans = answer.rows[0]
        return LightningStoreStatistics(
            name="KafkaLightningStore",
            total_rollouts=rollouts,
            total_attempts=attempts,
            total_spans=spans,
            total_resources=await self._resources.count(),
            total_workers=len(self._workers.all()),
            uptime=(self._clock.now_unix_nano() - self._started_unix_nano) / NANOS_PER_SECOND,
        )

    # --- positions

    def positions(self) -> LogPositions:
        latest = self._resources.latest_offset()
        resources = {0: latest} if latest >= 0 else {}
        offsets = {
            ROLLOUTS.name: self._tail.reported_at(),
            SPANS.name: self._span_writer.last(),
            RESOURCES.name: resources,
        }
        return LogPositions(self._log_id, offsets)

    async def see(self, positions: LogPositions) -> None:
        if positions.log != self._log_id:
            return
        rollouts, spans, resources = (positions.offsets.get(topic.name, {}) for topic in (ROLLOUTS, SPANS, RESOURCES))
        offsets = self.positions().offsets
        await self._check(ROLLOUTS, rollouts, offsets[ROLLOUTS.name], self._tail.read_up_to())
        await self._check(SPANS, spans, offsets[SPANS.name])
        await self._check(RESOURCES, resources, offsets[RESOURCES.name])
        self._tail.observe(rollouts)
        self._span_writer.observe(spans)
        for offset in resources.values():
            self._resources.observe(offset)

    async def _check(self, topic: Topic, offsets: Mapping[int, int], *known: Mapping[int, int]) -> None:
        """Refuse positions beyond the end of the log: nothing would ever reach them."""
        news = {
            partition: offset
            for partition, offset in offsets.items()
            if all(offset > mine.get(partition, -1) for mine in known)
        }
        if news:
            async with self._checking:
                await asyncio.to_thread(self._end_offsets.check, topic.name, news)

    def _known(self, rollouts_at_least: Mapping[int, int] | None = None) -> Offsets:
        """Offsets that an answer of the view must reflect: all that was written or told here, and those named."""
        offsets = self.positions().merged(LogPositions(self._log_id, {ROLLOUTS.name: rollouts_at_least or {}})).offsets
        return {topic: offsets[topic] for topic in (ROLLOUTS.name, SPANS.name)}

    # --- rollouts

    async def submit(self, events: Sequence[RolloutEvent]) -> list[RolloutState]:
        return await self._events.submit([(event, self._encoded(ROLLOUT_EVENTS, event)) for event in events])

    async def lease(self, count: int, worker_id: str | None, timeout_s: float, run_id: str) -> list[RolloutState]:
        deadline_s = time.monotonic() + timeout_s
        if self._dispatcher is None:
            raise ServiceUnavailableError("the store was not started.", next_step="Call `await store.start()` first.")
        dispatcher = self._dispatcher
        await dispatcher.ready(run_id)
        await self._tail.until_read(CATCH_UP_S)
        states: list[RolloutState] = []
        try:
            while len(states) < count:
                part = min(count - len(states), LEASED_AT_ONCE_MAX)
                leased = await self._lease_part(
                    dispatcher, worker_id or "", part, 0.0 if states else deadline_s, run_id
                )
                states += leased
                if len(leased) < part:
                    break
        except asyncio.CancelledError:
            for state in states:
                self._requeue(state)
            raise
        except LightstreamError:
            if not states:
                raise
        return states

    async def _lease_part(
        self, dispatcher: Dispatcher, worker_id: str, count: int, deadline_s: float, run_id: str
    ) -> list[RolloutState]:
        """Up to ``count`` rollouts: waits for the first until ``deadline_s``, and takes what there is by then."""
        leases = [LeaseRequest(worker_id, deadline_s if number == 0 else 0.0, run_id) for number in range(count)]
        try:
            dispatcher.add(leases)
            self._events.before_flush(dispatcher.flush)  # one request for all callers of this turn
            wait_s = max(0.0, deadline_s - time.monotonic())
            await asyncio.wait([leases[0].future], timeout=wait_s)
            dispatcher.flush()  # this turn's requests may still be due
            unanswered = [lease.future for lease in leases if lease.future.done() or not dispatcher.cancel(lease)]
            answers = await asyncio.gather(*unanswered, return_exceptions=True)
        except asyncio.CancelledError:
            for lease in leases:
                dispatcher.cancel(lease)
                # What still comes for it is requeued there, what came just now here.
                if not lease.future.cancel() and lease.future.exception() is None and (state := lease.future.result()):
                    self._requeue(state)
            raise
        states = [answer for answer in answers if isinstance(answer, RolloutState)]
        errors = [answer for answer in answers if isinstance(answer, BaseException)]
        if errors and not states:
            raise errors[0]
        return states

    def _requeue(self, state: RolloutState) -> None:
        """Queue a rollout again that was dispatched to a caller who had left. Nobody waits for it."""
        attempt_id = state.attempts[-1].attempt_id
        event = events_of.lease_returned(state.rollout.rollout_id, attempt_id, self._clock.now_unix_nano())

        def log_failure(error: BaseException | None) -> None:
            if error is not None:  # it counts as unresponsive in the end
                logger.warning("rollout %s was not requeued: %s", event.rollout_id, error)

        try:
            requeued = self._publisher.publish(ROLLOUT_EVENTS, event.rollout_id, event)
        except LightstreamError as error:
            log_failure(error)
        else:
            requeued.add_done_callback(lambda done: log_failure(done.exception()))

    async def wait_ended(
        self,
        rollout_ids: Sequence[str],
        needed: int,
        timeout: float | None,  # noqa: ASYNC109  # part of the answer, not an error
    ) -> dict[str, RolloutState]:
        until_s = math.inf if timeout is None else time.monotonic() + timeout
        patience_s = None if timeout is None else max(timeout, self._settings.publish_timeout_s)
        with self._tail.endings.expect(rollout_ids, needed) as waiting:
            # What the tail has passed already it will not tell again: the view must know of it.
            asking = asyncio.create_task(self._ended_of(rollout_ids, self._tail.read_up_to()))
            either: list[asyncio.Future[Any]] = [asking, waiting.enough]
            try:
                await asyncio.wait(either, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
                if not waiting.enough.done():  # else nobody needs to know what was over before
                    ended, open_ids = _answered(asking)
                    waiting.add(ended)
                    waiting.forget(set(rollout_ids) - open_ids)
                    await waiting.until_enough(None if timeout is None else max(0.0, until_s - time.monotonic()))
            finally:
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
            waiting.check()
            return waiting.ended

    async def _ended_of(
        self, rollout_ids: Sequence[str], at_least: Mapping[int, int]
    ) -> tuple[dict[str, RolloutState], set[str]]:
        """Of these rollouts, the states of those that are over, and the ids of those that are not.

        Args:
            at_least: offsets in ``rollouts`` that the answer must reflect.
        """
        known = self._known(at_least)
        rows = self._view.rows_of(
            rollout_ids, rollouts_sql.statuses_sql, "rollout_id", known, keys_max=STATUSES_AT_ONCE_MAX
        )
        statuses = {row["rollout_id"]: RolloutStatus(row["status"]) async for row in rows}
        over = [rollout_id for rollout_id, status in statuses.items() if status.is_terminal]
        return await self.states_of(over), statuses.keys() - set(over)

    async def states_of(self, rollout_ids: Sequence[str]) -> dict[str, RolloutState]:
        return await self._found(rollout_ids, rollouts_sql.states_sql)

    async def attempts_of(self, rollout_ids: Sequence[str]) -> dict[str, list[AttemptState]]:
        rows = self._view.rows_of(rollout_ids, rollouts_sql.attempts_sql, "rollout_id", self._known())
        return {row["rollout_id"]: attempts_of_row(row) async for row in rows}

    async def page_of_rollouts(self, query: Query) -> tuple[list[RolloutState], int]:
        answer = await self._view.ask(rollouts_sql.page_and_count_sql(query), self._known())
        if answer.truncated:
            return await self._large_page_of(query)
        rows = answer.dicts()
        if rows:
            return [state_of_row(row) for row in rows], int(rows[0]["total"])
        # A page beyond the last has no row that could tell.
        if query.offset == 0 and query.limit != 0:
            return [], 0
        return [], int((await self._view.ask(rollouts_sql.count_sql(query), self._known())).scalar())

    async def _large_page_of(self, query: Query) -> tuple[list[RolloutState], int]:
        """A page larger than an answer may be: which rollouts are on it, and then these, some hundred at a time.

        Each is on it once. One that does not match any more when it is read is left out.
        """
        ids, total = (await self._view.ask(rollouts_sql.ids_and_count_sql(query), self._known())).rows[0]
        found = await self._found(ids, partial(rollouts_sql.states_sql, query=query))
        return [found[rollout_id] for rollout_id in ids if rollout_id in found], int(total)

    async def _found(
        self, rollout_ids: Sequence[str], statement_of: Callable[[Sequence[str]], Statement]
    ) -> dict[str, RolloutState]:
        """By id, the states of those of these rollouts that the statement finds."""
        rows = self._view.rows_of(rollout_ids, statement_of, "rollout_id", self._known())
        return {row["rollout_id"]: state_of_row(row) async for row in rows}

    # --- spans

    def encoded_spans(self, spans: Sequence[Span]) -> list[bytes]:
        return [self._encoded(SPANS, self._redact(span_record(span))) for span in spans]

    async def append_spans(self, spans: Sequence[Span], encoded: Sequence[bytes]) -> list[Span]:
        return await self._span_writer.append(spans, encoded)

    async def page_of_spans(self, rollout_id: str, attempt_id: str | None, query: Query) -> tuple[list[Span], int]:
        arguments = (rollout_id, attempt_id, query)
        answer = await self._view.ask(spans_sql.spans_page_sql(*arguments), self._known())
        if answer.truncated:
            offsets, total = (await self._view.ask(spans_sql.span_offsets_sql(*arguments), self._known())).rows[0]
            statement_of = partial(spans_sql.spans_at_sql, rollout_id)
            rows = self._view.rows_of(offsets, statement_of, "log_offset", self._known())
            spans = {row["log_offset"]: span_of_row(row) async for row in rows}
            return [spans[offset] for offset in offsets], int(total)
        rows_of_page = answer.dicts()
        if rows_of_page:
            return [span_of_row(row) for row in rows_of_page], int(rows_of_page[0]["total"])
        if query.offset == 0 and query.limit != 0:
            return [], 0
        return [], int((await self._view.ask(spans_sql.span_count_sql(*arguments), self._known())).scalar())

    # --- resources

    async def put_resources(self, resources_id: str, make: NextVersion) -> ResourcesRecord:
        return await self._resource_writer.keep(resources_id, make, partial(self.find_resources, resources_id, 0.0))

    async def find_resources(self, resources_id: str | None, timeout_s: float) -> ResourcesRecord | None:
        return await self._resources.find(resources_id, timeout_s)

    async def all_resources(self) -> list[ResourcesRecord]:
        return await self._resources.all()

    async def _older_resources(self, resources_ids: Sequence[str]) -> Mapping[str, ResourcesRecord]:
        offsets = {RESOURCES.name: self.positions().offsets[RESOURCES.name]}
        rows = self._view.rows_of(resources_ids, rollouts_sql.resources_sql, "resources_id", offsets)
        return {row["resources_id"]: resources_of_row(row) async for row in rows}

    async def _write_resources(self, record: ResourcesRecord) -> Position:
        value = self._encoded(RESOURCES, record)
        return await asyncio.wrap_future(await self._handed_over(RESOURCES, record.resources_id, value))

    # --- workers

    def worker(self, worker_id: str) -> WorkerHeartbeat | None:
        return self._workers.get(worker_id)

    def workers(self) -> list[WorkerHeartbeat]:
        return self._workers.all()

    async def put_worker(self, worker_id: str, change: NextWorker, *, wait: bool = False) -> WorkerHeartbeat:
        if not wait:
            return self._workers.change(worker_id, change)
        record, written = self._write_worker(worker_id, change)
        await asyncio.wrap_future(written)
        return record

    async def heartbeat(self, worker_id: str, change: NextWorker, events: Sequence[RolloutEvent]) -> None:
        values = [self._encoded(ROLLOUT_EVENTS, event) for event in events]
        _, written = self._write_worker(worker_id, change)
        futures = [written]
        for event, value in zip(events, values, strict=True):
            futures.append(await self._handed_over(ROLLOUT_EVENTS, event.rollout_id, value))
        await asyncio.gather(*map(asyncio.wrap_future, futures))

    def notes_idle(self, known: WorkerHeartbeat, now_unix_nano: int) -> bool:
        silent_s = (now_unix_nano - (known.dequeued_unix_nano or 0)) / NANOS_PER_SECOND
        return known.status is not WorkerStatus.IDLE or silent_s >= IDLE_REPORT_INTERVAL_S

    def _write_worker(self, worker_id: str, change: NextWorker) -> tuple[WorkerHeartbeat, Future[Position]]:
        """Change a worker and hand it over; the future resolves when that is durable.

        Raises:
            StoreError: no record can hold it; nothing was changed.
        """
        try:
            return self._workers.write(worker_id, change)
        except (RecordTooLargeError, RecordError) as error:
            raise StoreError(str(error)) from error

    async def _flush_workers(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_INTERVAL_S)
            self._workers.flush()

    # --- records

    def _encoded(self, topic: Topic, record: Record) -> bytes:
        """The record as it is written.

        Raises:
            StoreError: it is too large, or holds what Avro cannot say.
        """
        try:
            return self._publisher.encoded(topic, record)
        except (RecordTooLargeError, RecordError) as error:
            raise StoreError(str(error)) from error

    async def _handed_over(self, topic: Topic, key: str, value: bytes) -> Future[Position]:
        """Hand over an encoded record, as soon as the send buffer has room.

        Raises:
            PublishError: it had none for as long as a record may take to become durable.
        """
        until_s = time.monotonic() + self._settings.publish_timeout_s
        publisher = self._span_publisher if topic is SPANS else self._publisher
        while True:
            try:
                return publisher.publish_encoded(topic, key, value)
            except BackpressureError:
                if time.monotonic() > until_s:
                    raise
                await asyncio.sleep(BUFFER_PAUSE_S)


def _answered(asking: asyncio.Task[T]) -> T:
    """The view's answer.

    Raises:
        ServiceUnavailableError: there is none yet.
    """
    if not asking.done():
        raise ServiceUnavailableError(
            "the view does not answer, so it is unknown which rollouts had ended before.",
            next_step="Is it running? `lightstream status` shows it; `lightstream view` starts it.",
        )
    return asking.result()
