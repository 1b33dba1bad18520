"""The queue of attempts to run: a Kafka consumer group, with offsets committed only for tasks that are settled."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition

from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import DecodeError
from lightstream.schemas.kafka import consumer_config
from lightstream.schemas.records import RolloutTask
from lightstream.schemas.settings import Settings
from lightstream.schemas.topics import ROLLOUT_QUEUE

__all__ = ["QueuedTask", "TaskQueue"]

MAX_POLL_INTERVAL_MS = 24 * 60 * 60 * 1000
"""A Runner whose slots are all busy does not poll; its heartbeats go on, so the group keeps it."""


@dataclass(frozen=True, slots=True)
class QueuedTask:
    """A task and where it lies. ``task`` is ``None`` for a record that is not one."""

    partition: int
    offset: int
    task: RolloutTask | None


class TaskQueue:
    """Takes tasks one by one. Thread-safe: several may be in hand, and settle in any order.

    What is taken and not settled when the process dies is handed to another member of the group.
    """

    def __init__(self, settings: Settings, codec: Codec) -> None:
        self._codec = codec
        self._lock = threading.Lock()
        self._topic = ROLLOUT_QUEUE.full_name(settings.topic_prefix)
        self._in_hand: dict[int, dict[int, bool]] = {}
        config = consumer_config(settings, group_id=f"{settings.topic_prefix}lightstream-runners")
        self._consumer = Consumer(
            config
            | {
                "max.poll.interval.ms": MAX_POLL_INTERVAL_MS,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 1000,
                "queued.min.messages": 1,
                "partition.assignment.strategy": "cooperative-sticky",
            }
        )
        self._consumer.subscribe([self._topic], on_revoke=self._revoked, on_lost=self._revoked)

    def take(self, timeout_s: float) -> QueuedTask | None:
        """The next record, or ``None`` if none came within ``timeout_s`` seconds."""
        message = self._consumer.poll(timeout_s)
        if message is None or message.error() is not None:
            return None
        partition, offset = message.partition() or 0, message.offset() or 0
        with self._lock:
            self._in_hand.setdefault(partition, {})[offset] = False
        try:
            record = self._codec.decode(message.value())
        except DecodeError:
            record = None  # the view has the bytes as a dead letter
        return QueuedTask(partition, offset, record if isinstance(record, RolloutTask) else None)

    def settle(self, taken: QueuedTask) -> None:
        """The task has been started, or needs no start. Commits all below the first that is still in hand."""
        with self._lock:
            in_hand = self._in_hand.get(taken.partition)
            if in_hand is None or taken.offset not in in_hand:
                return  # the partition went to another member meanwhile
            in_hand[taken.offset] = True
            settled = _settled_prefix(in_hand)
            if not settled:
                return
            for offset in settled:
                del in_hand[offset]
            position = TopicPartition(self._topic, taken.partition, settled[-1] + 1)
        try:
            self._consumer.commit(offsets=[position], asynchronous=True)
        except KafkaException:
            return  # not a member any more: the task is handed out again and its second start refused

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()

    def _revoked(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        with self._lock:
            for partition in partitions:
                self._in_hand.pop(partition.partition, None)


def _settled_prefix(in_hand: dict[int, bool]) -> list[int]:
    """Offsets, ascending, that are settled and have nothing unsettled before them."""
    prefix: list[int] = []
    for offset in sorted(in_hand):
        if not in_hand[offset]:
            break
        prefix.append(offset)
    return prefix
