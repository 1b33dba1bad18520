"""The life cycle on Kafka: it reads ``rollout-events``, and writes effects, then states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from confluent_kafka import Message

from lightstream.runtime.kafka import (
    ANSWERS,
    HEAD_LENGTH,
    QUEUE,
    STATE,
    Headers,
    Outgoing,
    QueueSummary,
    answers_header,
    queues_header,
    read_state,
    state_header,
    writer_in,
)
from lightstream.runtime.logs import logged_ids_of
from lightstream.schemas.errors import RecordError, UnknownSchemaError
from lightstream.schemas.records import DeadLetterReason, Record, RolloutEvent, RolloutState, RolloutStatus, TaskRequest
from lightstream.schemas.topics import ROLLOUT_EVENTS, ROLLOUTS, Topic

from ..core.lifecycle import LifecyclePartition, Limits, Transition
from .context import Unusable, WorkerContext
from .finished_rollouts_db import FinishedRolloutsDb
from .inbox import LogRecord
from .outbox import Outbox
from .unread import UnreadRecords

FLUSH_STATES = 500
"""Finished rollouts that are kept in memory before they go to the db together."""

QUEUES_BYTES_MAX = 16 * 1024
"""Of a header: state records leave room for it. Runs that changed earlier are in the next record's header then."""

QUEUES_WITH_HEADS_MAX = 16
"""If more have changed, as after a restart, each but the latest is reported with its first entry only."""

RECOVERED_FLUSH_STATES = 20_000
"""As above, while nobody waits for an answer: about 10 MB."""


class _StateRecord(NamedTuple):
    """One record of ``rollouts``: a state, or the empty answer to a request."""

    key: str
    state: RolloutState | None
    headers: Headers


class LifecycleHandler:
    """One partition of the life cycle (a :class:`PartitionHandler`).

    Order of writing within a batch, each durable before the next: effects and dead letters, states, the committed
    offset. A crash between any two repeats events whose states are not yet written, and so at most their effects.

    From an event on that only another version can read, its rollout stays as it is: nothing of it is folded, dispatched
    or due. Other rollouts go on, and nothing from that event on is committed, so that version reads it when it starts.
    """

    def __init__(self, context: WorkerContext, partition: int) -> None:
        self.topic: Topic = ROLLOUT_EVENTS
        self.partition = partition
        self._context = context
        self._finished: FinishedRolloutsDb | None = None
        self._lifecycle: LifecyclePartition  # from recover() on
        self._events = context.reader(ROLLOUT_EVENTS, partition)
        self._states = context.reader(ROLLOUTS, partition)
        self._reported: dict[str, QueueSummary] = {}
        self.unread = UnreadRecords()

    def recover(self) -> int:
        """Fold this partition's states back into memory; the db has the finished ones, up to an offset."""
        settings = self._context.settings
        name = f"{ROLLOUTS.full_name(settings.topic_prefix)}-{self.partition}.sqlite"
        self._finished = finished = FinishedRolloutsDb(settings.data_dir / "worker" / name, self._states.topic_id())
        self._lifecycle = LifecyclePartition(
            Limits.of(settings), self._context.clock, self._context.codec, finished, finished.reflected
        )
        for message in self._states.records(finished.read_from):
            if (value := message.value()) is None or (header := _state_header(message)) is None:
                continue  # an answer without a state, or not written by a life cycle: the view reports that
            rollout_id, (source_offset, status) = (message.key() or b"").decode(), header
            writer = writer_in(_headers(message))
            self._lifecycle.restore(rollout_id, source_offset, status, value, writer)
            if status is not RolloutStatus.UNKNOWN:
                finished.written(rollout_id, message.offset() or 0, source_offset, terminal=status.is_terminal)
            if finished.unflushed >= RECOVERED_FLUSH_STATES:
                finished.flush()
        for rollout_id, error in self._lifecycle.restored().items():
            self.unread.hold(rollout_id.encode(), None, error)
        finished.flush()
        return self._events.committed()

    def close(self) -> None:
        if self._finished is not None:
            self._finished.close()

    def missing_between(self, first: int, end: int) -> bool:
        return self._events.missing_between(first, end)

    async def handle(self, batch: Sequence[LogRecord]) -> int:
        effects = self._context.outbox()
        written: list[_StateRecord] = []
        for record in batch:
            decoded: Record | None = None
            if self.unread.takes(record):
                continue
            try:
                decoded = self._context.decode(self.topic, record)
                transitions = self._apply(decoded, record, written)
            except UnknownSchemaError as error:  # of the record, or of the state of its rollout
                self.unread.hold(record.key, record.offset, error)
                self._lifecycle.hold((record.key or b"").decode("utf-8", "replace"))
                continue
            except Unusable as unusable:
                with logged_ids_of(decoded):
                    await self._context.dead_letter(effects, self.topic, record, unusable, "life cycle")
                continue
            for effect in (effect for transition in transitions for effect in transition.effects):
                instead = self._context.or_letter(effect.topic, effect.key, effect.record)
                await effects.send(effect.topic, effect.key, effect.record, instead=instead)
        if written:
            written[-1].headers.extend(self._queue_header())
        await effects.hand_over()
        states = self._context.outbox()
        for each in written:  # encoded while the effects are on their way
            await self._encode(states, each)
        await effects.durable()
        for each, position in zip(written, await states.durable(), strict=True):
            if each.state is not None and position.topic == ROLLOUTS.name:  # else it was too large for the topic
                self._keep(each.state, position.offset)
        return batch[-1].offset + 1

    async def _encode(self, outbox: Outbox, record: _StateRecord) -> None:
        """Add the record to what goes out; the state of a finished rollout was encoded to be kept."""
        state, headers = record.state, record.headers
        instead = None if state is None else self._context.or_letter(ROLLOUTS, record.key, state)
        if state is not None and self._finished is not None:
            kept = self._finished.unwritten(state.rollout.rollout_id, state.source_offset)
            if kept is not None:
                outbox.add(Outgoing(ROLLOUTS, record.key, kept, headers, self.partition, instead))
                return
        await outbox.send(ROLLOUTS, record.key, state, headers=headers, partition=self.partition, instead=instead)

    def _keep(self, state: RolloutState, offset: int) -> None:
        if self._finished is not None and state.status is not RolloutStatus.UNKNOWN:
            rollout_id, terminal = state.rollout.rollout_id, state.status.is_terminal
            self._finished.written(rollout_id, offset, state.source_offset, terminal=terminal)

    async def tick(self) -> None:
        """Write the events that are due; they take effect when they come back from the log."""
        if self._finished is not None and self._finished.unflushed >= FLUSH_STATES:
            self._finished.flush()
        outbox = self._context.outbox()
        for event in self._lifecycle.due():
            await outbox.send(ROLLOUT_EVENTS, event.rollout_id, event)
        await outbox.durable()

    def held_back(self) -> int | None:
        return self.unread.first_offset

    def _apply(self, decoded: Record, record: LogRecord, written: list[_StateRecord]) -> list[Transition]:
        """Fold one record, and add to ``written`` what goes to ``rollouts``."""
        if isinstance(decoded, TaskRequest):
            starts = self._lifecycle.on_request(decoded, record.offset, record.logged_unix_nano or None)
            if starts is None:
                return []
            states = [start.record for start in starts if start.record is not None]
            for left, state in zip(range(len(states) - 1, -1, -1), states, strict=True):
                written.append(self._to_write(state, decoded, left))
            if not states:
                written.append(self._to_write(None, decoded, 0))
            return starts
        transition = self._fold(record, decoded)
        if transition is None:
            return []
        if transition.record is not None:
            written.append(self._to_write(transition.record))
        return [transition]

    def _fold(self, record: LogRecord, event: Record) -> Transition | None:
        assert isinstance(event, RolloutEvent)  # noqa: S101  # decode() checked it
        if record.key != event.rollout_id.encode():
            # Under another key it lies in another partition, whose life cycle does not know the rollout.
            detail = f"the key is {record.key!r}, the rollout {event.rollout_id!r}"
            raise Unusable(DeadLetterReason.BROKEN_RULE, detail)
        try:
            return self._lifecycle.on_event(event, record.offset, record.logged_unix_nano or None)
        except RecordError as error:
            raise Unusable(DeadLetterReason.BROKEN_RULE, str(error)) from error

    def _to_write(
        self, state: RolloutState | None, request: TaskRequest | None = None, still_to_come: int = 0
    ) -> _StateRecord:
        headers: Headers = []
        if request is not None and not still_to_come:  # the Runner asks again by what is left
            headers += self._queue_header(request.run_id if state is None else None)
        if state is not None:
            headers.append((STATE, state_header(state.source_offset, state.status)))
        if request is not None:
            headers.append((ANSWERS, answers_header(request.request_id, still_to_come)))
        key = state.rollout.rollout_id if state is not None else request.request_id if request is not None else ""
        return _StateRecord(key, state, headers)

    def _queue_header(self, asked: str | None = None) -> Headers:
        """The queues that changed since they were last reported: for the last record of a batch, and of each answer.

        Args:
            asked: a run that is reported in any case.
        """
        changed = self._lifecycle.queues_changed()
        if asked is not None:
            changed = [asked, *(run_id for run_id in changed if run_id != asked)]
        queues: dict[str, QueueSummary] = {}
        room = QUEUES_BYTES_MAX
        for run_id in changed:
            count = HEAD_LENGTH if len(queues) < QUEUES_WITH_HEADS_MAX else 1
            head = [entry.merge_key for entry in self._lifecycle.queue_head(count, run_id)]
            queue = QueueSummary(self._lifecycle.queue_length(run_id), head)
            if queue != self._reported.get(run_id) or run_id == asked:
                room -= len(queues_header({run_id: queue}))
                if room < 0 and queues:
                    break
                queues[run_id] = queue
            self._lifecycle.queue_noted(run_id)
            if queue.waiting:
                self._reported[run_id] = queue
            else:
                self._reported.pop(run_id, None)
        return [(QUEUE, queues_header(queues))] if queues else []


def _headers(message: Message) -> Headers:
    headers = message.headers() or []
    return list(headers.items() if isinstance(headers, dict) else headers)


def _state_header(message: Message) -> tuple[int, RolloutStatus] | None:
    """Source offset of the state in a record of ``rollouts``, and its status."""
    value = dict(_headers(message)).get(STATE)
    try:
        return read_state(value) if isinstance(value, bytes) else None
    except ValueError:
        return None
