"""The queue of attempts to run: a Kafka consumer group, with offsets committed only for tasks that are settled."""

from __future__ import annotations

import heapq
import threading
import time
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

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

CATCH_UP_TIMEOUT_S = 10.0
"""How long a look at the whole queue may take: joining the group (3 s as a rule) and reading to the end."""

WATERMARK_TIMEOUT_S = 5.0
AHEAD_MAX = 1000
"""Tasks held ready, so that the oldest of all partitions goes first; one or two more, when a poll brings them."""


@dataclass(frozen=True, slots=True)
class QueuedTask:
    """A task and where it lies. ``task`` is ``None`` for a record that is not one."""

    partition: int
    offset: int
    task: RolloutTask | None


class TaskQueue:
    """Takes tasks one by one, the oldest first, in one thread. Several may be in hand, and settle in any order and from
    any thread.

    What is taken and not settled when the process dies is handed to another member of the group. Only the taking thread
    touches the client: confluent-kafka's consumer has one lock, and a commit from elsewhere waits behind every poll.
    """

    def __init__(self, settings: Settings, codec: Codec) -> None:
        self._codec = codec
        self._lock = threading.Lock()
        self._topic = ROLLOUT_QUEUE.full_name(settings.topic_prefix)
        self._in_hand: dict[int, dict[int, bool]] = {}
        self._uncommitted: dict[int, int] = {}
        self._ready: list[tuple[int, int, int, QueuedTask]] = []
        self._next: dict[int, int] = {}
        self._joined = False
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
        self._consumer.subscribe(
            [self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )

    def take(self, timeout_s: float) -> QueuedTask | None:
        """The oldest task of the partitions that are this member's.

        ``None`` if none came within ``timeout_s`` seconds. A ``timeout_s`` of 0 does not wait for tasks to come, but
        looks through all that there are now, which takes some seconds while the group is being joined.
        """
        if timeout_s <= 0:
            return self._take_of_now()
        deadline_s = time.monotonic() + timeout_s
        while True:
            self._commit(asynchronous=True)
            left_s = deadline_s - time.monotonic()
            self._read(0.0 if self._ready else max(0.0, min(left_s, COMMIT_INTERVAL_S)))
            if self._ready:
                return heapq.heappop(self._ready)[-1]
            if left_s <= COMMIT_INTERVAL_S:
                return None

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

    def _take_of_now(self) -> QueuedTask | None:
        self._commit(asynchronous=True)
        deadline_s = time.monotonic() + CATCH_UP_TIMEOUT_S
        while not self._joined and time.monotonic() < deadline_s:
            self._read(COMMIT_INTERVAL_S)
        try:
            ends = self._ends()
            while any(self._next[partition] < end for partition, end in ends.items() if partition in self._next):
                if time.monotonic() > deadline_s or len(self._ready) >= AHEAD_MAX:
                    break
                self._read(COMMIT_INTERVAL_S)
        except KafkaException:
            self._read(0.0)  # the broker is away: what there is must do
        return heapq.heappop(self._ready)[-1] if self._ready else None

    def _ends(self) -> dict[int, int]:
        """The end of each partition that is this member's, and, as a side effect, where its reading begins."""
        ends: dict[int, int] = {}
        assigned = [TopicPartition(self._topic, place.partition) for place in self._consumer.assignment()]
        unknown = [place for place in assigned if place.partition not in self._next]
        committed = {p.partition: p.offset for p in self._consumer.committed(unknown, WATERMARK_TIMEOUT_S)}
        for place in assigned:
            low, ends[place.partition] = self._consumer.get_watermark_offsets(place, timeout=WATERMARK_TIMEOUT_S)
            self._next.setdefault(place.partition, max(low, committed.get(place.partition, low)))
        return ends

    def _read(self, timeout_s: float) -> None:
        """Take over what was fetched; waits up to ``timeout_s`` seconds for a first record.

        Polls also where enough is held ready, as rebalances are answered there; what a poll returns is ours to keep.
        """
        room = AHEAD_MAX - len(self._ready)
        first = self._consumer.poll(timeout_s if room > 0 else 0.0)
        if first is None:
            return
        for message in (first, *(self._consumer.consume(room, 0) if room > 0 else ())):
            if message.error() is None:
                self._hold(message)

    def _hold(self, message: Message) -> None:
        partition, offset = message.partition() or 0, message.offset() or 0
        with self._lock:
            self._in_hand.setdefault(partition, {})[offset] = False
        self._next[partition] = offset + 1
        try:
            record = self._codec.decode(message.value() or b"")
        except DecodeError:
            record = None  # the view has the bytes as a dead letter
        task = record if isinstance(record, RolloutTask) else None
        _, written_ms = message.timestamp()
        age = written_ms * 1_000_000
        if task is not None and task.attempt_sequence == 1 and task.rollout.enqueued_unix_nano:
            age = task.rollout.enqueued_unix_nano
        heapq.heappush(self._ready, (age, partition, offset, QueuedTask(partition, offset, task)))

    def _commit(self, *, asynchronous: bool) -> None:
        with self._lock:
            positions = [TopicPartition(self._topic, *place) for place in self._uncommitted.items()]
            self._uncommitted.clear()
        if not positions:
            return
        try:
            if asynchronous:  # two calls, as the client's type hints have one for each
                self._consumer.commit(offsets=positions, asynchronous=True)
            else:
                self._consumer.commit(offsets=positions, asynchronous=False)
        except KafkaException:
            return  # not a member any more: the tasks are handed out again and their second start refused

    def _assigned(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self._joined = True

    def _revoked(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        gone = {place.partition for place in partitions}
        with self._lock:
            for partition in gone:
                self._in_hand.pop(partition, None)
                self._uncommitted.pop(partition, None)
        for partition in gone:
            self._next.pop(partition, None)
        self._ready = [item for item in self._ready if item[1] not in gone]
        heapq.heapify(self._ready)


def _settled_prefix(in_hand: dict[int, bool]) -> list[int]:
    """Offsets, ascending, that are settled and have nothing unsettled before them."""
    prefix: list[int] = []
    for offset in sorted(in_hand):
        if not in_hand[offset]:
            break
        prefix.append(offset)
    return prefix
