"""Reads a partition directly, beside Faust's consumer: states to recover from, committed offsets, gaps."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing

from confluent_kafka import Consumer, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.schemas.kafka import common_config, consumer_config
from lightstream.schemas.settings import Settings
from lightstream.schemas.topics import Topic

from .inbox import LogRecord

__all__ = ["LogReader"]

REQUEST_TIMEOUT_S = 30.0
"""For one answer of the cluster; longer than a broker takes to restart."""

STALL_TIMEOUT_S = 60.0
"""Without any record for this long while some are due, the cluster counts as gone."""

AHEAD_KIB_MAX = 8192
"""Fetched and not yet taken: all partitions recover at once, and 64 MiB each, the default, would be most of memory."""

POLL_TIMEOUT_S = 0.1
RECORDS_PER_POLL_MAX = 500
MILLISECOND_NANOS = 1_000_000


class LogReader:
    """Blocking reads of one partition. Makes a consumer per call: calls are rare (assignments and gaps)."""

    def __init__(self, settings: Settings, group_id: str, topic: Topic, partition: int) -> None:
        self._settings = settings
        self._group_id = group_id
        self._place = (topic.full_name(settings.topic_prefix), partition)

    def records(self, start: int = 0) -> Iterator[tuple[int, bytes | None]]:
        """Offset and value of every record, from ``start`` to the one that is last when this is called.

        Raises:
            ServiceUnavailableError: the cluster does not answer.
        """
        with closing(self._consumer()) as consumer:
            first, end = self._watermarks(consumer)
            if max(first, start) >= end:
                return
            consumer.assign([TopicPartition(*self._place, max(first, start))])
            waited_s = 0.0
            while self._position(consumer) < end:
                messages = consumer.consume(RECORDS_PER_POLL_MAX, POLL_TIMEOUT_S)
                waited_s = 0.0 if messages else waited_s + POLL_TIMEOUT_S
                if waited_s > STALL_TIMEOUT_S:
                    raise self._unavailable(f"no record for {STALL_TIMEOUT_S:g} s, although {end} is not reached")
                for message in messages:
                    if message.error() is None:
                        yield message.offset() or 0, message.value()

    def ranges(self, ranges: Sequence[tuple[int, int]], stopped: threading.Event) -> Iterator[LogRecord]:
        """The records of ascending ranges of offsets (both ends inclusive), as far as they are in the log.

        Ends early once ``stopped`` is set.

        Raises:
            ServiceUnavailableError: the cluster does not answer.
        """
        if not ranges:
            return
        with closing(self._consumer()) as consumer:
            low, high = self._watermarks(consumer)
            for first, last in ranges:
                end = min(last + 1, high)
                if max(first, low) < end:
                    yield from self._range(consumer, max(first, low), end, stopped)

    def _range(self, consumer: Consumer, first: int, end: int, stopped: threading.Event) -> Iterator[LogRecord]:
        consumer.assign([TopicPartition(*self._place, first)])
        waited_s = 0.0
        while self._position(consumer) < end and not stopped.is_set():
            messages = consumer.consume(RECORDS_PER_POLL_MAX, POLL_TIMEOUT_S)
            waited_s = 0.0 if messages else waited_s + POLL_TIMEOUT_S
            if waited_s > STALL_TIMEOUT_S:
                raise self._unavailable(f"no record for {STALL_TIMEOUT_S:g} s, although {end} is not reached")
            for message in messages:
                offset = message.offset() or 0
                if message.error() is None and first <= offset < end:
                    stamp_ms = max(message.timestamp()[1], 0)
                    yield LogRecord(*self._place, offset, message.key(), message.value(), stamp_ms * MILLISECOND_NANOS)

    def first_logged_at(self, unix_nano: int) -> int:
        """Offset of the first record stamped at ``unix_nano`` or later; the end of the log where there is none.

        Raises:
            ServiceUnavailableError: the cluster does not answer.
        """
        with closing(self._consumer()) as consumer:
            low, end = self._watermarks(consumer)
            if unix_nano <= 0:
                return low
            asked = TopicPartition(*self._place, unix_nano // MILLISECOND_NANOS)
            try:
                (found,) = consumer.offsets_for_times([asked], timeout=REQUEST_TIMEOUT_S)
            except KafkaException as error:
                raise self._unavailable(error) from error
            return found.offset if found.offset >= 0 else end

    def topic_id(self) -> str:
        """What tells this topic from another of the same name (KIP-516).

        Raises:
            ServiceUnavailableError: the cluster does not answer.
        """
        admin = AdminClient(common_config(self._settings))
        asked = admin.describe_topics(TopicCollection([self._place[0]]), request_timeout=REQUEST_TIMEOUT_S)
        try:
            return str(asked[self._place[0]].result().topic_id)
        except KafkaException as error:
            raise self._unavailable(error) from error

    def committed(self) -> int:
        """The group's next offset: the committed one, or the first there is."""
        with closing(self._consumer()) as consumer:
            try:
                (place,) = consumer.committed([TopicPartition(*self._place)], timeout=REQUEST_TIMEOUT_S)
            except KafkaException as error:
                raise self._unavailable(error) from error
            first, _ = self._watermarks(consumer)
            return max(place.offset, first)

    def missing_between(self, first: int, end: int) -> bool:
        """Whether a record lies at ``first`` or above and below ``end``."""
        with closing(self._consumer()) as consumer:
            low, _ = self._watermarks(consumer)
            consumer.assign([TopicPartition(*self._place, max(first, low))])
            waited_s = 0.0
            while self._position(consumer) < end:
                message = consumer.poll(POLL_TIMEOUT_S)
                if message is not None and message.error() is None:
                    return (message.offset() or 0) < end
                waited_s += POLL_TIMEOUT_S
                if waited_s > STALL_TIMEOUT_S:
                    raise self._unavailable(f"no record for {STALL_TIMEOUT_S:g} s, although {end} is not reached")
            return False

    def _consumer(self) -> Consumer:
        config = consumer_config(self._settings, group_id=self._group_id)
        return Consumer(config | {"queued.max.messages.kbytes": AHEAD_KIB_MAX})

    def _watermarks(self, consumer: Consumer) -> tuple[int, int]:
        try:
            return consumer.get_watermark_offsets(TopicPartition(*self._place), timeout=REQUEST_TIMEOUT_S)
        except KafkaException as error:
            raise self._unavailable(error) from error

    def _position(self, consumer: Consumer) -> int:
        (place,) = consumer.position([TopicPartition(*self._place)])
        return place.offset  # negative before the first record

    def _unavailable(self, why: object) -> ServiceUnavailableError:
        topic, partition = self._place
        return ServiceUnavailableError(f"partition {partition} of {topic!r} cannot be read: {why}.")
