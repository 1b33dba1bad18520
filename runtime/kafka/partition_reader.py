"""A part of one partition, read once: by offsets, from a time on, or as far as the log goes now."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing

from confluent_kafka import Consumer, Message, TopicPartition

from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.schemas.topics import Topic

from ..clock import NANOS_PER_MILLISECOND
from ..settings import Settings
from .config import consumer_config
from .connect import connected
from .offset_ranges import OffsetRange
from .read_errors import ANSWER_TIMEOUT_S, PATIENCE_S, answered
from .topic_tail import TopicTail
from .unavailable import kafka_unavailable

STALL_TIMEOUT_S = 60.0
"""Without any record for this long while some are due, the cluster counts as gone."""

POLL_TIMEOUT_S = 0.1
RECORDS_PER_POLL_MAX = 500


class PartitionReader:
    """Blocking reads of one partition that outlast a broker's restart. Joins no group, commits nothing.

    Makes a consumer per call, so any thread may call at any time; calls should be rare.

    Args:
        group_id: which group the client says it is of.
        read_committed: whether records of transactions count only once these are committed; the log then ends where
            the first transaction is open.
        limits: librdkafka's settings for how much is fetched ahead, where its own are too large.
    """

    def __init__(
        self,
        settings: Settings,
        topic: Topic,
        partition: int,
        *,
        group_id: str,
        read_committed: bool = False,
        limits: Mapping[str, int] | None = None,
    ) -> None:
        self._settings = settings
        self._group_id = group_id
        self._read_committed = read_committed
        self._limits = limits or {}
        self._topic = topic
        self._partition = partition
        self._place = (topic.full_name(settings.topic_prefix), partition)

    def watermarks(self) -> tuple[int, int]:
        """The first offset there is, and the one that comes next.

        Raises:
            ServiceUnavailableError: the cluster does not answer.
        """

        def ask() -> tuple[int, int]:
            # A consumer that met a broker before it served its partitions may take a while to believe that it does.
            with closing(self._consumer()) as consumer:
                return consumer.get_watermark_offsets(TopicPartition(*self._place), timeout=ANSWER_TIMEOUT_S)

        return answered(ask, what=self._trouble)

    def first_logged_at(self, unix_nano: int) -> int:
        """Offset of the first record stamped at ``unix_nano`` or later; the end of the log where there is none.

        Raises:
            ServiceUnavailableError: the cluster does not answer.
        """
        low, end = self.watermarks()
        if unix_nano <= 0:
            return low

        def ask() -> int:
            target = TopicPartition(*self._place, unix_nano // NANOS_PER_MILLISECOND)
            with closing(self._consumer()) as consumer:
                (found,) = consumer.offsets_for_times([target], timeout=ANSWER_TIMEOUT_S)
                return found.offset

        found = answered(ask, what=self._trouble)
        return found if found >= 0 else end

    def records(self, start: int = 0) -> Generator[Message]:
        """Every record, from ``start`` to the one that is last when the reading begins.

        Raises:
            ServiceUnavailableError: the cluster does not answer.
        """
        low, end = self.watermarks()
        if max(low, start) < end:
            with closing(self._tail()) as tail:
                yield from self._between(tail, max(low, start), end)

    def ranges(self, ranges: Sequence[OffsetRange], stopped: threading.Event | None = None) -> Generator[Message]:
        """The records of ascending ranges, as far as they are in the log.

        Ends early once ``stopped`` is set.

        Raises:
            ServiceUnavailableError: the cluster does not answer.
        """
        if not ranges:
            return
        low, high = self.watermarks()
        with closing(self._tail()) as tail:
            for first, last in ranges:
                yield from self._between(tail, max(first, low), min(last + 1, high), stopped)

    def _between(
        self, tail: TopicTail, first: int, end: int, stopped: threading.Event | None = None
    ) -> Iterator[Message]:
        """Yield what lies at ``first`` or above and below ``end``."""
        if first >= end:
            return
        waited_s = 0.0
        tail.follow(self._topic, {self._partition: first})
        while tail.next_offsets(self._topic)[self._partition] < end and not (stopped is not None and stopped.is_set()):
            records = tail.poll(POLL_TIMEOUT_S, records_max=RECORDS_PER_POLL_MAX).records
            waited_s = 0.0 if records else waited_s + POLL_TIMEOUT_S
            yield from (message for message in records if first <= (message.offset() or 0) < end)
            if waited_s > STALL_TIMEOUT_S:
                trouble = f"no record for {STALL_TIMEOUT_S:g} s, although offset {end} is not reached"
                raise kafka_unavailable(trouble, what=self._trouble)

    def _consumer(self) -> Consumer:
        config = consumer_config(self._settings, group_id=self._group_id, read_committed=self._read_committed)
        return Consumer(config | dict(self._limits))

    def _tail(self) -> TopicTail:
        return TopicTail(
            self._settings,
            [self._topic],
            group_id=self._group_id,
            read_committed=self._read_committed,
            limits=self._limits,
        )

    @property
    def _trouble(self) -> str:
        topic, partition = self._place
        return f"partition {partition} of {topic!r} cannot be read"


def logged_unix_nano(message: Message) -> int:
    """Return the time at which a record was logged, in nanoseconds; 0 where the log does not say."""
    return max(message.timestamp()[1], 0) * NANOS_PER_MILLISECOND


def partitions_of(settings: Settings, topic: Topic) -> list[int]:
    """The partitions that a topic has on the cluster, whatever was set.

    Raises:
        ServiceUnavailableError: the cluster does not answer, or has no such topic.
    """
    name = topic.full_name(settings.topic_prefix)
    _, cluster = connected(settings, timeout_s=PATIENCE_S)
    found = cluster.topics
    if name not in found:
        raise ServiceUnavailableError(
            f"the cluster has no topic {name!r}.",
            next_step="Is LIGHTSTREAM_TOPIC_PREFIX right? `lightstream topics create` creates missing ones.",
        )
    return sorted(found[name].partitions)
