"""The queue of attempts to run: a Kafka consumer group, with offsets committed only for tasks that are settled."""

from __future__ import annotations

import threading
import time
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

COMMIT_INTERVAL_S = 0.1
"""How long settled tasks wait for their commit while no new task comes."""


@dataclass(frozen=True, slots=True)
class QueuedTask:
    """A task and where it lies. ``task`` is ``None`` for a record that is not one."""

    partition: int
    offset: int
    task: RolloutTask | None


class TaskQueue:
    """Takes tasks one by one, in one thread. Several may be in hand, and settle in any order and from any thread.

    What is taken and not settled when the process dies is handed to another member of the group. Only the taking thread
    touches the client: confluent-kafka's consumer has one lock, and a commit from elsewhere waits behind every poll.
    """

    def __init__(self, settings: Settings, codec: Codec) -> None:
        self._codec = codec
        self._lock = threading.Lock()
        self._topic = ROLLOUT_QUEUE.full_name(settings.topic_prefix)
        self._in_hand: dict[int, dict[int, bool]] = {}
        self._uncommitted: dict[int, int] = {}
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
        deadline_s = time.monotonic() + timeout_s
        while True:
            self._commit(asynchronous=True)
            left_s = deadline_s - time.monotonic()
            message = self._consumer.poll(max(0.0, min(left_s, COMMIT_INTERVAL_S)))
            if message is not None or left_s <= COMMIT_INTERVAL_S:
                break
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
        """The task has been started, or needs no start. All below the first that is still in hand is committed soon."""
        with self._lock:
            in_hand = self._in_hand.get(taken.partition)
            if in_hand is None or taken.offset not in in_hand:
                return  # the partition went to another member meanwhile
            in_hand[taken.offset] = True
            for offset in _settled_prefix(in_hand):
                del in_hand[offset]
                self._uncommitted[taken.partition] = offset + 1

    def close(self) -> None:
        """Commit what is settled and leave the group. Call it from the taking thread, or when that has ended."""
        self._commit(asynchronous=False)
        self._consumer.close()

    def _commit(self, *, asynchronous: bool) -> None:
        with self._lock:
            positions = [TopicPartition(self._topic, *place) for place in self._uncommitted.items()]
            self._uncommitted.clear()
        if not positions:
            return
        try:
            self._consumer.commit(offsets=positions, asynchronous=asynchronous)
        except KafkaException:
            return  # not a member any more: the tasks are handed out again and their second start refused

    def _revoked(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        with self._lock:
            for partition in partitions:
                self._in_hand.pop(partition.partition, None)
                self._uncommitted.pop(partition.partition, None)


def _settled_prefix(in_hand: dict[int, bool]) -> list[int]:
    """Offsets, ascending, that are settled and have nothing unsettled before them."""
    prefix: list[int] = []
    for offset in sorted(in_hand):
        if not in_hand[offset]:
            break
        prefix.append(offset)
    return prefix
