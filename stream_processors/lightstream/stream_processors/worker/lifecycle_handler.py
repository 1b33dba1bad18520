"""The life cycle on Kafka: facts from ``rollout-events``; effects, then states, out."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

from lightstream.schemas.clock import Clock
from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import DecodeError, RecordError
from lightstream.schemas.kafka import Position, Publisher
from lightstream.schemas.records import DeadLetterReason, RolloutEvent, RolloutState
from lightstream.schemas.settings import Settings
from lightstream.schemas.topics import ROLLOUT_EVENTS, ROLLOUTS, Topic

from ..core.lifecycle import LifecyclePartition, Limits, Transition
from .dead_letter import DeadLetters, Unusable, decode
from .durable import all_durable
from .inbox import LogRecord
from .log_reader import LogReader

__all__ = ["LifecycleHandler"]


class LifecycleHandler:
    """One partition of the life cycle (a :class:`PartitionHandler`).

    Order of writing, each durable before the next: effects and dead letters, states, the committed offset. A crash
    between any two repeats facts whose states are not yet written, and so at most their effects.
    """

    def __init__(
        self, partition: int, settings: Settings, publisher: Publisher, codec: Codec, clock: Clock, group_id: str
    ) -> None:
        self.topic: Topic = ROLLOUT_EVENTS
        self.partition = partition
        self._publisher = publisher
        self._codec = codec
        self._lifecycle = LifecyclePartition(Limits.of(settings), clock, codec)
        self._facts = LogReader(settings, group_id, ROLLOUT_EVENTS, partition)
        self._states = LogReader(settings, group_id, ROLLOUTS, partition)
        self._dead_letters = DeadLetters(publisher, clock, settings, "life cycle")

    def recover(self) -> int:
        """Fold this partition's states back into memory."""
        for value in self._states.values():
            try:
                state = self._codec.decode(value)
            except DecodeError:
                continue  # not written by a life cycle; the view reports it
            if isinstance(state, RolloutState):
                self._lifecycle.restore(state)
        return self._facts.committed()

    def missing_between(self, first: int, end: int) -> bool:
        return self._facts.missing_between(first, end)

    async def handle(self, batch: Sequence[LogRecord]) -> int:
        transitions: list[Transition] = []
        sent: list[Future[Position]] = []
        for record in batch:
            try:
                transition = self._fold(record)
            except Unusable as unusable:
                sent.append(self._dead_letters.send(self.topic, record, unusable))
                continue
            if transition is not None:
                transitions.append(transition)
                sent.extend(self._publisher.publish(e.topic, e.key, e.record) for e in transition.effects)
        await all_durable(sent)
        states = [transition.record for transition in transitions if transition.record is not None]
        await all_durable([self._publisher.publish(ROLLOUTS, state.rollout.rollout_id, state) for state in states])
        return batch[-1].offset + 1

    async def tick(self) -> None:
        """Write the facts that are due; they take effect when they come back from the log."""
        facts = self._lifecycle.due()
        await all_durable([self._publisher.publish(ROLLOUT_EVENTS, fact.rollout_id, fact) for fact in facts])

    def _fold(self, record: LogRecord) -> Transition | None:
        event = decode(self._codec, self.topic, record)
        assert isinstance(event, RolloutEvent)  # noqa: S101  # decode() checked it against the topic
        if record.key != event.rollout_id.encode():
            # Under another key it lies in another partition, where nobody knows the rollout.
            detail = f"the key is {record.key!r}, the rollout {event.rollout_id!r}"
            raise Unusable(DeadLetterReason.BROKEN_RULE, detail)
        try:
            return self._lifecycle.on_event(event, record.offset)
        except RecordError as error:
            raise Unusable(DeadLetterReason.BROKEN_RULE, str(error)) from error
