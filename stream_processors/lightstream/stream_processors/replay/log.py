"""A topic from one time to its present end, without a consumer group: nothing is committed, nobody is disturbed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from lightstream.schemas.codec import codec_for
from lightstream.schemas.errors import DecodeError
from lightstream.schemas.kafka import consumer_config, kafka_unavailable
from lightstream.schemas.records import Record
from lightstream.schemas.settings import Settings
from lightstream.schemas.topics import Topic

__all__ = ["LogEntry", "TopicReader"]

GROUP_ID = "lightstream-replay"
"""Asked for by the client; never joined, never committed to."""
REQUEST_TIMEOUT_S = 30.0
STALL_TIMEOUT_S = 60.0
"""Without any record for this long while some are due, the cluster counts as gone."""
POLL_TIMEOUT_S = 0.5
RECORDS_PER_POLL_MAX = 500
MILLISECOND_NANOS = 1_000_000


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A record, where it lies, when it was logged, and what it takes there."""

    record: Record
    offset: int
    logged_unix_nano: int
    size_bytes: int


class TopicReader:
    """Reads the records of a topic, partition by partition, as far as it went when this was made.

    Attributes:
        undecodable: how many records :meth:`records` could not decode (the view shows each as a dead letter).
    """

    def __init__(self, settings: Settings, topic: Topic) -> None:
        self._settings = settings
        self._name = topic.full_name(settings.topic_prefix)
        self._codec = codec_for(settings)
        self.undecodable = 0
        with closing(self._consumer()) as consumer:
            try:
                partitions = consumer.list_topics(self._name, timeout=REQUEST_TIMEOUT_S).topics[self._name].partitions
                self._ranges = {
                    p: consumer.get_watermark_offsets(TopicPartition(self._name, p), timeout=REQUEST_TIMEOUT_S)
                    for p in sorted(partitions)
                }
            except KafkaException as error:
                raise kafka_unavailable(error, what=f"{self._name!r} cannot be read") from error

    @property
    def partitions(self) -> list[int]:
        """The topic's partitions."""
        return list(self._ranges)

    def records(self, partition: int, from_unix_nano: int = 0) -> Iterator[LogEntry]:
        """In offset order, the records stamped at ``from_unix_nano`` and those behind the first of these.

        Raises:
            ServiceUnavailableError: the cluster does not answer.
        """
        first, end = self._ranges[partition]
        with closing(self._consumer()) as consumer:
            start = self._first_at(consumer, partition, from_unix_nano) if from_unix_nano else first
            for message in self._messages(consumer, partition, max(first, start), end):
                entry = self._entry(message)
                if entry is None:
                    self.undecodable += 1
                else:
                    yield entry

    def again(self, partition: int, ranges: Sequence[tuple[int, int]]) -> Iterator[LogEntry]:
        """The records in ascending ranges of offsets (both ends inclusive) once more, as far as they are still there.

        Raises:
            ServiceUnavailableError: the cluster does not answer.
        """
        with closing(self._consumer()) as consumer:
            for first, last in ranges:
                for message in self._messages(consumer, partition, first, last + 1):
                    entry = self._entry(message)
                    if entry is not None:
                        yield entry

    def _messages(self, consumer: Consumer, partition: int, first: int, end: int) -> Iterator[Message]:
        consumer.assign([TopicPartition(self._name, partition, first)])
        at, waited_s = first, 0.0
        while at < end:
            messages = consumer.consume(RECORDS_PER_POLL_MAX, POLL_TIMEOUT_S)
            waited_s = 0.0 if messages else waited_s + POLL_TIMEOUT_S
            if waited_s > STALL_TIMEOUT_S:
                stalled = f"no record for {STALL_TIMEOUT_S:g} s, although offset {end} is not reached"
                raise kafka_unavailable(stalled, what=f"{self._name!r} cannot be read")
            for message in messages:
                if message.error() is None and first <= (message.offset() or 0) < end:
                    yield message
            at = max(at, consumer.position([TopicPartition(self._name, partition)])[0].offset)

    def _entry(self, message: Message) -> LogEntry | None:
        """``None`` for bytes that are not a record."""
        value = message.value()
        try:
            record = self._codec.decode(value)
        except DecodeError:
            return None
        nanos = max(message.timestamp()[1], 0) * MILLISECOND_NANOS
        return LogEntry(record, message.offset() or 0, nanos, len(value or b""))

    def _first_at(self, consumer: Consumer, partition: int, unix_nano: int) -> int:
        asked = TopicPartition(self._name, partition, unix_nano // MILLISECOND_NANOS)
        try:
            (found,) = consumer.offsets_for_times([asked], timeout=REQUEST_TIMEOUT_S)
        except KafkaException as error:
            raise kafka_unavailable(error, what=f"{self._name!r} cannot be read") from error
        return found.offset if found.offset >= 0 else self._ranges[partition][1]

    def _consumer(self) -> Consumer:
        return Consumer(consumer_config(self._settings, group_id=GROUP_ID, read_committed=True))
