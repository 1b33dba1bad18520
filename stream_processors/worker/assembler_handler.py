"""The assembler on Kafka: it reads ``spans``, and writes trajectories and heartbeats."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from lightstream.runtime.kafka import Headers, Outgoing, run_headers
from lightstream.runtime.logs import logged_ids_of
from lightstream.schemas.errors import NewerWriterError, RecordError, RecordTooLargeError
from lightstream.schemas.records import (
    AttemptClosed,
    AttemptOpened,
    DeadLetterReason,
    EventKind,
    Record,
    RolloutEvent,
    SpanRecord,
    Trajectory,
)
from lightstream.schemas.topics import ROLLOUT_EVENTS, SPANS, TRAJECTORIES, Topic
from lightstream.schemas.valid_text import valid_text

from ..core.assembly import LONG_SPANS_MIN, Assembler, AssemblyRules, DeferredAssembly
from ..core.lifecycle import Limits
from .assembled import Identity, assembled_header, identity, read_assembled
from .context import Unusable, WorkerContext
from .deferred_assembly import LargeAttempts, LateSpanReader, revisions_of
from .inbox import LogRecord
from .large_trajectories import smaller, without_calls
from .outbox import Outbox
from .unread import UnreadRecords

logger = logging.getLogger(__name__)

HEARTBEATS_PER_SILENCE = 3
"""An attempt that sends spans all the time gives this many events per ``unresponsive_seconds``."""


class AssemblerHandler:
    """One partition of the assembler (a :class:`PartitionHandler`).

    It keeps nothing outside memory: the committed offset stays below the opening of the oldest attempt whose trajectory
    is not out, and below every late span whose revision is not out, so after a crash the log itself gives the state
    back, and what was emitted since comes out again with the same identity.

    From a record on that only another version can read, nothing of its rollout is taken: its attempt stays open, and
    comes out whole once that version reads it. Other rollouts go on, and nothing from that record on is committed.
    """

    def __init__(self, context: WorkerContext, partition: int) -> None:
        self.topic: Topic = SPANS
        self.partition = partition
        self._context = context
        rules = AssemblyRules.of(context.settings)
        self._assembler = Assembler(partition, rules, reads_back=True)
        self._heartbeats = SpanHeartbeats(Limits.of(context.settings))
        self._spans = context.reader(SPANS, partition)
        self._large = LargeAttempts(self._finish_large)
        self.unread = UnreadRecords()
        self._late = LateSpanReader(self._spans, context.codec, partition, rules, self._send_read_back, self.unread)
        self._refused_reported = 0
        self._topic_id = ""
        self._through = 0
        self._written: set[Identity] = set()

    def recover(self) -> int:
        """The state comes with the records from the committed offset on.

        Where the group has none, the trajectories that were written tell it, and which of those that come out from
        there on were written already.
        """
        self._topic_id = self._spans.topic_id()
        committed = self._spans.known_committed()
        self._through = max(committed or 0, self._spans.first())
        if committed is None and (found := read_assembled(self._context, self._topic_id, self.partition)) is not None:
            self._through = max(self._through, min(found.position, self._spans.end()))
            self._written = set(found.since)
            logger.warning(
                "the group has no offset for partition %d of spans; trajectories were written up to %d, and %d since",
                self.partition,
                self._through,
                len(self._written),
            )
        return self._through

    def missing_between(self, first: int, end: int) -> bool:
        return self._spans.missing_between(first, end)

    async def handle(self, batch: Sequence[LogRecord]) -> int:
        outbox = self._context.outbox()
        now = self._context.clock.now_unix_nano()
        for record in batch:
            decoded: Record | None = None
            if self.unread.takes(record):
                continue
            try:
                decoded = self._context.decode(self.topic, record)
                assert isinstance(decoded, SpanRecord | AttemptOpened | AttemptClosed)  # noqa: S101  # decode() checked it
                if type(decoded) is AttemptClosed and self._assembler.takes_long(decoded):
                    await self._large.add(self._assembler.detach(decoded, record.offset), record)
                else:
                    for trajectory in self._assemble(decoded, record):
                        await self._send(outbox, trajectory)
            except NewerWriterError as error:
                self.unread.hold(record.key, record.offset, error)
                continue
            except Unusable as unusable:
                with logged_ids_of(decoded):
                    await self._context.dead_letter(outbox, self.topic, record, unusable, "assembler")
                continue
            heartbeat = self._heartbeats.on_record(decoded, record.offset, now)
            if heartbeat is not None:
                await outbox.send(ROLLOUT_EVENTS, heartbeat.rollout_id, heartbeat)
        await self._revise(outbox)
        low_water = self._assembler.low_water(batch[-1].offset + 1, self._first_deferred())
        await outbox.durable()
        self._through = low_water
        return low_water

    async def tick(self) -> None:
        """Report events outside the batches; only in the life cycle does time change anything."""
        self._large.check()
        self._late.check()
        refused = self._assembler.refused_count + self._late.refused_count
        if refused > self._refused_reported:
            logger.warning("%d late spans were refused: too late, or too many for their attempts", refused)
            self._refused_reported = refused

    def held_back(self) -> int | None:
        first = self._first_deferred()
        return None if first is None else self._assembler.not_between(first)

    def _first_deferred(self) -> int | None:
        """Offset at which the first of the work outside the batches begins, or of what waits for another version."""
        offsets = (self._large.oldest, self._late.oldest, self.unread.first_offset)
        return min((offset for offset in offsets if offset is not None), default=None)

    def close(self) -> None:
        self._large.close()
        self._late.close()

    async def _revise(self, outbox: Outbox) -> None:
        takes_long = self._assembler.revises_long
        revised = self._assembler.take_revised()
        made = await asyncio.to_thread(revisions_of, revised) if takes_long else revisions_of(revised)
        await self._send_revisions(outbox, made)
        self._late.add(self._assembler.take_to_read())

    async def _send_read_back(self, trajectories: Sequence[Trajectory]) -> None:
        await self._large.all_done()  # what they revise comes first
        outbox = self._context.outbox()
        await self._send_revisions(outbox, trajectories)
        await outbox.durable()

    async def _finish_large(self, attempt: DeferredAssembly, record: LogRecord) -> None:
        outbox = self._context.outbox()
        with logged_ids_of(attempt):
            try:
                await self._send(outbox, await asyncio.to_thread(self._finished, attempt, record))
            except Unusable as unusable:
                await self._context.dead_letter(outbox, self.topic, record, unusable, "assembler")
        await outbox.durable()

    async def _send_revisions(self, outbox: Outbox, revisions: Sequence[Trajectory]) -> None:
        for trajectory in revisions:
            try:
                await self._send(outbox, trajectory)
            except Unusable as unusable:  # what was late stays so in the view's table of drops
                with logged_ids_of(trajectory):
                    logger.error("no revision %d of %s: %s", trajectory.revision, trajectory.attempt_id, unusable)

    def _assemble(self, decoded: SpanRecord | AttemptOpened | AttemptClosed, record: LogRecord) -> list[Trajectory]:
        try:
            return self._assembler.on_record(decoded, record.offset, record.logged_unix_nano)
        except Exception as error:  # recorded as a dead letter: one span must not stop all others forever
            raise _failed(decoded, record, error) from error

    def _finished(self, attempt: DeferredAssembly, record: LogRecord) -> Trajectory:
        try:
            return attempt.trajectory()
        except Exception as error:  # as above
            raise _failed(attempt, record, error) from error

    async def _send(self, outbox: Outbox, trajectory: Trajectory) -> None:
        with logged_ids_of(trajectory):
            try:
                await self._send_fitting(outbox, trajectory)
            except RecordError as error:  # one text must not stop all others forever
                logger.error("a trajectory of rollout %s cannot be written as it is: %s", trajectory.rollout_id, error)
                try:
                    await self._send_fitting(outbox, await asyncio.to_thread(valid_text, trajectory))
                except RecordError as still:
                    raise Unusable(DeadLetterReason.BROKEN_RULE, still.message) from still

    async def _send_fitting(self, outbox: Outbox, trajectory: Trajectory) -> None:
        """Send the trajectory, or what fits into a record.

        Raises:
            RecordError: it cannot be written.
            Unusable: not even how the attempt ended fits.
        """
        if identity(trajectory) in self._written:
            self._written.discard(identity(trajectory))
            return
        held_back = self.held_back()
        position = self._through if held_back is None else min(self._through, held_back)
        assembled = assembled_header(self._topic_id, self.partition, position)
        key, headers = trajectory.group_id or trajectory.rollout_id, run_headers(trajectory.run_id) + assembled
        in_thread = trajectory.span_count >= LONG_SPANS_MIN
        instead = partial(self._instead, key, headers, trajectory)
        try:
            await outbox.send(TRAJECTORIES, key, trajectory, headers=headers, instead=instead, in_thread=in_thread)
        except RecordTooLargeError as error:
            context = self._context
            small = await asyncio.to_thread(smaller, trajectory, error.message, context.settings, context.codec)
            try:
                instead = partial(self._instead, key, headers, small)
                await outbox.send(TRAJECTORIES, key, small, headers=headers, instead=instead, in_thread=True)
            except RecordTooLargeError:
                logger.error("not even the calls of attempt %s fit into a record: its end goes out", small.attempt_id)
                try:
                    end = without_calls(small)
                    instead = partial(self._instead, key, headers, end)
                    await outbox.send(TRAJECTORIES, key, end, headers=headers, instead=instead)
                except RecordTooLargeError as still:
                    raise Unusable(DeadLetterReason.TOO_LARGE, still.message) from still

    def _instead(self, key: str, headers: Headers, record: Trajectory, error: RecordTooLargeError) -> Outgoing:
        """What goes out in place of a trajectory that the topic does not take: less of it, at last a dead letter."""
        context = self._context
        with logged_ids_of(record):
            logger.error("a trajectory of rollout %s goes out smaller: %s", record.rollout_id, error)
        if record.triplets:
            cut = smaller(record, error.message, context.settings, context.codec)
        elif record.drops or record.rewards or record.notes or record.input_json != "null":
            cut = without_calls(record)
        else:
            return context.letter_instead(TRAJECTORIES, key, record, error)
        instead = partial(self._instead, key, headers, cut)
        return Outgoing(TRAJECTORIES, key, context.codec.encode(cut), headers, instead=instead)


def _failed(about: Record | DeferredAssembly, record: LogRecord, error: Exception) -> Unusable:
    with logged_ids_of(about):
        logger.error(
            "the assembler failed on offset %d of partition %d", record.offset, record.partition, exc_info=error
        )
    return Unusable(DeadLetterReason.BROKEN_RULE, f"{type(error).__name__}: {error}")


@dataclass(slots=True)
class _Heartbeat:
    interval_nanos: int
    sent_unix_nano: int


class SpanHeartbeats:
    """Passes some spans of one partition's open attempts on as heartbeat events: spans are signs of life."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._attempts: dict[str, _Heartbeat] = {}

    def on_record(
        self, record: SpanRecord | AttemptOpened | AttemptClosed, offset: int, now_unix_nano: int
    ) -> RolloutEvent | None:
        """The heartbeat that this record at ``offset`` stands for; ``None`` if one was sent not long ago."""
        if isinstance(record, AttemptOpened):
            interval = self._limits.unresponsive_nanos(record.rollout.config) // HEARTBEATS_PER_SILENCE
            self._attempts[record.attempt_id] = _Heartbeat(interval, now_unix_nano - interval)  # the first span counts
            return None
        if isinstance(record, AttemptClosed):
            self._attempts.pop(record.attempt_id, None)
            return None
        attempt = self._attempts.get(record.attempt_id or "")
        if attempt is None or not record.rollout_id or now_unix_nano - attempt.sent_unix_nano < attempt.interval_nanos:
            return None
        attempt.sent_unix_nano = now_unix_nano
        return RolloutEvent(
            event_id=f"{record.attempt_id}:span:{offset}",
            kind=EventKind.HEARTBEAT,
            rollout_id=record.rollout_id,
            occurred_unix_nano=now_unix_nano,
            attempt_id=record.attempt_id,
        )
