"""The life cycle on Kafka: facts from ``rollout-events``; effects, then states, out."""

from __future__ import annotations

from collections.abc import Sequence

from lightstream.schemas.errors import DecodeError, RecordError
from lightstream.schemas.records import DeadLetterReason, RolloutEvent, RolloutState
from lightstream.schemas.topics import ROLLOUT_EVENTS, ROLLOUTS, Topic

from ..core.lifecycle import LifecyclePartition, Limits, Transition
from .context import WorkerContext
from .dead_letter import Unusable, decode
from .inbox import LogRecord

__all__ = ["LifecycleHandler"]


class LifecycleHandler:
    """One partition of the life cycle (a :class:`PartitionHandler`).

    Order of writing, each durable before the next: effects and dead letters, states, the committed offset. A crash
    between any two repeats facts whose states are not yet written, and so at most their effects.
    """

    def __init__(self, context: WorkerContext, partition: int) -> None:
        self.topic: Topic = ROLLOUT_EVENTS
        self.partition = partition
        self._context = context
        self._lifecycle = LifecyclePartition(Limits.of(context.settings), context.clock, context.codec)
        self._facts = context.reader(ROLLOUT_EVENTS, partition)
        self._states = context.reader(ROLLOUTS, partition)

    def recover(self) -> int:
        """Fold this partition's states back into memory."""
        for value in self._states.values():
            try:
                state = self._context.codec.decode(value)
            except DecodeError:
                continue  # not written by a life cycle; the view reports it
            if isinstance(state, RolloutState):
                self._lifecycle.restore(state)
        return self._facts.committed()

    def missing_between(self, first: int, end: int) -> bool:
        return self._facts.missing_between(first, end)

    async def handle(self, batch: Sequence[LogRecord]) -> int:
        outbox = self._context.outbox()
        states: list[RolloutState] = []
        for record in batch:
            try:
                transition = self._fold(record)
            except Unusable as unusable:
                await self._context.set_aside(outbox, self.topic, record, unusable, "life cycle")
                continue
            if transition is None:
                continue
            for effect in transition.effects:
                await outbox.send(effect.topic, effect.key, effect.record)
            if transition.record is not None:
                states.append(transition.record)
        await outbox.durable()
        for state in states:
            await outbox.send(ROLLOUTS, state.rollout.rollout_id, state)
        await outbox.durable()
        return batch[-1].offset + 1

    async def tick(self) -> None:
        """Write the facts that are due; they take effect when they come back from the log."""
        outbox = self._context.outbox()
        for fact in self._lifecycle.due():
            await outbox.send(ROLLOUT_EVENTS, fact.rollout_id, fact)
        await outbox.durable()

    def _fold(self, record: LogRecord) -> Transition | None:
        event = decode(self._context.codec, self.topic, record)
        assert isinstance(event, RolloutEvent)  # noqa: S101  # so decode() said
        if record.key != event.rollout_id.encode():
            # Under another key it lies in another partition, where nobody knows the rollout.
            detail = f"the key is {record.key!r}, the rollout {event.rollout_id!r}"
            raise Unusable(DeadLetterReason.BROKEN_RULE, detail)
        try:
            return self._lifecycle.on_event(event, record.offset)
        except RecordError as error:
            raise Unusable(DeadLetterReason.BROKEN_RULE, str(error)) from error
