"""The writing half of the store on Kafka: events and verdicts, the queue, spans, resources, workers."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial

from lightstream.runtime.clock import NANOS_PER_SECOND, Clock
from lightstream.runtime.kafka import KafkaPublisher, Position
from lightstream.runtime.schema_registry import codec_for
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
    ANY_RUN,
    Record,
    ResourcesRecord,
    RolloutChanges,
    RolloutEvent,
    RolloutState,
    RolloutStatus,
    WorkerHeartbeat,
    WorkerStatus,
)
from lightstream.schemas.topics import RESOURCES, ROLLOUT_EVENTS, SPANS, Topic
from lightstream.schemas.types import (
    AttemptedRollout,
    ResourcesUpdate,
    Span,
)
from lightstream.stream_processors.core.lifecycle import Limits

from .. import _events, _shapes
from .._checks import check_dequeue, check_report, check_text, check_timeout, checked_attempts
from .._logged import NextVersion
from .._loop_calls import future_in
from .._reading import ReadingStore
from .._workers import WorkerChange, reported
from .dispatch import Dispatch, Want
from .judge import Judge
from .log_tail import LogTail
from .resource_writer import ResourceWriter
from .span_writer import SpanWriter
from .spans import span_record
from .turns import BUFFER_PAUSE_S, Turns
from .worker_news import WorkerNews

__all__ = ["KafkaWriting"]

logger = logging.getLogger(__name__)

LINGER_MS = 0.0
"""Events are small and waited for. Those of one turn go out together (:class:`Turns`), so none waits for another:
any linger, however short, costs 1.2 ms. Such batches gain little by compression, and zstd costs 40 microseconds each in
the writer alone: all but spans go by lz4."""

CATCH_UP_S = 10.0
"""How long a taker waits to read what it was told of, by another store as a rule (``see``)."""

GIVE_BACK_S = 2.0
"""How long a store that closes waits for answers, to give back what they bring."""

TAKEN_AT_ONCE_MAX = 256
"""Rollouts that one call asks for at a time: a caller may name any limit, and each takes a kilobyte or two."""

IDLE_REPORT_INTERVAL_S = 10.0
"""How often a worker that finds nothing again and again is written down as having asked."""


class KafkaWriting(ReadingStore):
    """What needs Kafka and no view."""

    def __init__(self, settings: Settings, *, clock: Clock | None = None) -> None:
        super().__init__(clock)
        self._settings = settings
        self._codec = codec_for(settings)
        self._publisher = KafkaPublisher(settings, codec=self._codec, linger_ms=LINGER_MS, compression="lz4")
        self._span_publisher = KafkaPublisher(settings, codec=self._codec, linger_ms=LINGER_MS)
        self._turns = Turns(self._publisher, settings.publish_timeout_s)
        self._tail = LogTail(settings, self._codec, self._older_resources)
        self._judge_of_events = Judge(self._turns, self._tail, settings.publish_timeout_s)
        self._dispatch: Dispatch | None = None
        self._is_closed = False
        self._resource_writer = ResourceWriter(self._write_resources, self._tail.resources, settings.publish_timeout_s)
        self._worker_news = WorkerNews(self._publisher, self._tail.workers)
        self._tail.call_often(self._worker_news.tell_in_turn)
        self._lock = threading.Lock()
        self._span_writer = SpanWriter(partial(self._handed_over, SPANS))

    async def dequeue_many_rollouts(
        self, *, limit: int = 1, worker_id: str | None = None, timeout_s: float = 0.0, run_id: str = ANY_RUN
    ) -> list[AttemptedRollout]:
        check_dequeue(limit, timeout_s, worker_id, run_id)
        if limit <= 0:
            return []
        deadline_s = time.monotonic() + timeout_s
        dispatch = await self._dispatch_ready(run_id)
        states: list[RolloutState] = []
        try:
            while len(states) < limit:
                count = min(limit - len(states), TAKEN_AT_ONCE_MAX)
                taken = await self._taken(dispatch, worker_id or "", count, 0.0 if states else deadline_s, run_id)
                states += taken
                if len(taken) < count:
                    break
        except asyncio.CancelledError:
            for state in states:
                self._give_back(state)
            raise
        except LightstreamError:
            if not states:
                raise
        if not states:
            await self._found_nothing(worker_id)
        return [await self._handed_out(state, state.attempts[-1], dequeued=True) for state in states]

    async def _taken(
        self, dispatch: Dispatch, worker_id: str, count: int, deadline_s: float, run_id: str
    ) -> list[RolloutState]:
        """Up to ``count`` rollouts; waits for the first of them until ``deadline_s``."""
        wants = [Want(worker_id, deadline_s if number == 0 else 0.0, run_id) for number in range(count)]
        try:
            dispatch.note(wants)
            self._turns.at_end(dispatch.ask)  # once for all callers of this turn: one request instead of one each
            return await self._handed(dispatch, wants)
        except asyncio.CancelledError:
            for want in wants:
                dispatch.withdraw(want)
                # What still comes for it is given back there, what came just now here.
                if not want.future.cancel() and want.future.exception() is None and (state := want.future.result()):
                    self._give_back(state)
            raise

    async def _handed(self, dispatch: Dispatch, wants: Sequence[Want]) -> list[RolloutState]:
        """What the wants bring: the first may wait for it, the others get what there is by then."""
        loop = asyncio.get_running_loop()
        if len(wants) == 1:
            state = await self._handed_one(loop, dispatch, wants[0])
            return [] if state is None else [state]
        futures = [future_in(loop, want.future) for want in wants]
        await asyncio.wait(futures[:1], timeout=max(0.0, wants[0].deadline_s - time.monotonic()))
        dispatch.ask()  # the turn may be held
        left = [future for want, future in zip(wants, futures, strict=True) if not dispatch.withdraw(want)]
        answers = await asyncio.gather(*left, return_exceptions=True)
        states = [answer for answer in answers if isinstance(answer, RolloutState)]
        errors = [answer for answer in answers if isinstance(answer, BaseException)]
        if errors and not states:
            raise errors[0]
        return states

    async def _handed_one(self, loop: asyncio.AbstractEventLoop, dispatch: Dispatch, want: Want) -> RolloutState | None:
        """As :meth:`_handed`, for the one want that most callers have."""
        future = future_in(loop, want.future)

        def give_up() -> None:
            dispatch.ask()  # the turn may be held
            if dispatch.withdraw(want) and not future.done():  # else it is asked for, and will be answered
                future.set_result(None)

        timer = loop.call_later(max(0.0, want.deadline_s - time.monotonic()), give_up)
        try:
            return await future
        finally:
            timer.cancel()

    async def _dispatch_ready(self, run_id: str) -> Dispatch:
        """Who gets us work, made when it is first asked for, once it knows of all that this store was told of."""
        with self._lock:
            if self._is_closed:
                raise ServiceUnavailableError("the store was closed.")
            if self._dispatch is None:
                self._dispatch = Dispatch(
                    self._publisher,
                    self._clock,
                    self._tail.partitions(),
                    answer_timeout_s=self._settings.publish_timeout_s,
                    give_back=self._give_back,
                )
                self._tail.tell(self._dispatch)
            dispatch = self._dispatch
        ready = dispatch.ready(run_id)
        if not ready.done():
            await asyncio.wrap_future(ready)
        await self._tail.until_read(CATCH_UP_S)
        return dispatch

    def _give_back(self, state: RolloutState) -> None:
        """Queue a rollout again that was dispatched to somebody who had left."""
        changes = RolloutChanges(fields=["status"], status=RolloutStatus.REQUEUING)
        event = _events.rollout_updated(state.rollout.rollout_id, changes, self._clock.now_unix_nano())

        def tell(error: BaseException | None) -> None:
            if error is not None:
                logger.warning("rollout %s was not requeued: %s", event.rollout_id, error)

        try:
            given_back = self._publisher.publish(ROLLOUT_EVENTS, event.rollout_id, event)
        except LightstreamError as error:  # it counts as unresponsive in the end
            tell(error)
        else:
            given_back.add_done_callback(lambda done: tell(done.exception()))

    async def _found_nothing(self, worker_id: str | None) -> None:
        if worker_id is None:
            return
        known, now = self._tail.workers.get(worker_id), self._clock.now_unix_nano()
        silent = IDLE_REPORT_INTERVAL_S * NANOS_PER_SECOND
        if known is None or known.status is not WorkerStatus.IDLE or now - (known.dequeued_unix_nano or 0) >= silent:
            await self._keep_worker(worker_id, WorkerChange.found_nothing(known, now))

    async def heartbeat(self, worker: WorkerHeartbeat, attempts: Sequence[tuple[str, str]]) -> None:
        check_report(worker)
        named = checked_attempts("attempts", attempts)
        now = self._clock.now_unix_nano()
        events = [_events.heartbeat(rollout_id, attempt_id, worker.worker_id, now) for rollout_id, attempt_id in named]
        values = [self._encoded(ROLLOUT_EVENTS, event) for event in events]
        _, written = self._write_worker(worker.worker_id, lambda known: reported(known, worker))
        futures = [written]
        for event, value in zip(events, values, strict=True):
            futures.append(await self._handed_over(ROLLOUT_EVENTS, event.rollout_id, value))
        await asyncio.gather(*map(asyncio.wrap_future, futures))

    async def get_resources_by_id(self, resources_id: str, *, timeout_s: float = 0.0) -> ResourcesUpdate | None:
        check_text("resources_id", resources_id)
        return _told(await self._resources(resources_id, timeout_s))

    async def get_latest_resources(self, *, timeout_s: float = 0.0) -> ResourcesUpdate | None:
        return _told(await self._resources(None, timeout_s))

    async def _judge(self, event: RolloutEvent) -> RolloutState:
        return (await self._judge_all([event]))[0]

    async def _judge_all(self, events: Sequence[RolloutEvent]) -> list[RolloutState]:
        """Write events and return the states that carry their verdicts.

        Raises:
            ServiceUnavailableError: no verdict in time; what was written is durable and will be judged later.
            PublishError: one of them did not become durable.
            StoreError: no record can hold one of them; nothing was written.
        """
        return await self._judge_of_events.all([(event, self._encoded(ROLLOUT_EVENTS, event)) for event in events])

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

    async def _durable(self, topic: Topic, key: str, record: Record) -> Position:
        """Write one record.

        Raises:
            StoreError: it is too large, or holds what Avro cannot say; nothing was written.
            PublishError: it did not become durable.
        """
        return await asyncio.wrap_future(await self._handed_over(topic, key, self._encoded(topic, record)))

    def _encoded_spans(self, spans: Sequence[Span]) -> list[bytes]:
        return [self._encoded(SPANS, span_record(span)) for span in spans]

    async def _keep_spans(self, spans: Sequence[Span], encoded: Sequence[bytes]) -> list[Span]:
        return await self._span_writer.keep(spans, encoded)

    @property
    def _limits(self) -> Limits:
        return Limits.of(self._settings)

    async def _keep_resources(self, resources_id: str, make: NextVersion) -> ResourcesRecord:
        return await self._resource_writer.keep(resources_id, make, partial(self._resources, resources_id, 0.0))

    async def _write_resources(self, record: ResourcesRecord) -> Position:
        return await self._durable(RESOURCES, record.resources_id, record)

    async def _keep_worker(self, worker_id: str, change: WorkerChange, *, wait: bool = False) -> WorkerHeartbeat:
        changed = partial(change.applied_to, worker_id)
        if not wait:
            return self._worker_news.keep(worker_id, changed)
        record, written = self._write_worker(worker_id, changed)
        await asyncio.wrap_future(written)
        return record

    def _write_worker(
        self, worker_id: str, change: Callable[[WorkerHeartbeat | None], WorkerHeartbeat]
    ) -> tuple[WorkerHeartbeat, Future[Position]]:
        """Change a worker and hand it over; the future resolves when that is durable.

        Raises:
            StoreError: no record can hold it; nothing was changed.
        """
        try:
            return self._worker_news.write(worker_id, change)
        except (RecordTooLargeError, RecordError) as error:
            raise StoreError(str(error)) from error

    @abstractmethod
    async def _older_resources(self, resources_ids: Sequence[str]) -> Mapping[str, ResourcesRecord]:
        """Resources by id that are in the log, and not kept here any more."""

    async def _resources(self, resources_id: str | None, timeout_s: float) -> ResourcesRecord | None:
        check_timeout("timeout_s", timeout_s)
        return await self._tail.resources.find(resources_id, timeout_s)

    async def _worker(self, worker_id: str) -> WorkerHeartbeat | None:
        return self._tail.workers.get(worker_id)


def _told(record: ResourcesRecord | None) -> ResourcesUpdate | None:
    return None if record is None else _shapes.resources_update(record)
