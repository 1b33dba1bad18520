"""Reads a partition directly, beside Faust's consumer: states to recover from, committed offsets, gaps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.schemas.kafka import common_config, consumer_config, kafka_unavailable
from lightstream.schemas.settings import Settings
from lightstream.schemas.topics import Topic

from .inbox import LogRecord

__all__ = ["LogReader"]

T = TypeVar("T")

REQUEST_TIMEOUT_S = 30.0
"""For one answer of the cluster; longer than a broker takes to restart."""

PASSING = frozenset(
    {
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._DESTROY_BROKER,
        KafkaError._WAIT_COORD,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    }
)
"""What a cluster answers while a broker restarts. librdkafka tries some of these again by itself, but not all: a broker
that is back before it has loaded the groups answers ``NOT_COORDINATOR`` to whoever asked it before it went, and it
lists topics before it serves their partitions. What was asked of the bootstrap connection in the moment in which the
broker is known by its number is ``_DESTROY_BROKER``. (That the topics exist was looked at when the worker started.)"""

RETRY_INTERVAL_S = 0.2

STALL_TIMEOUT_S = 60.0
"""Without any record for this long while some are due, the cluster counts as gone."""

AHEAD_KIB_MAX = 8192
"""Fetched and not yet taken: all partitions recover at once, and 64 MiB each, the default, would be most of memory."""

FETCH_BYTES_MAX = 1024 * 1024
"""Per request, compressed: states shrink twentyfold, and an answer of 32 MiB, as clients ask for otherwise, would be a
million of them in memory at once. A larger record still comes, alone."""

POLL_TIMEOUT_S = 0.1
RECORDS_PER_POLL_MAX = 500
MILLISECOND_NANOS = 1_000_000


class LogReader:
    """Blocking reads of one partition. Makes a consumer per call: calls are rare (assignments and gaps)."""

    def __init__(self, settings: Settings, group_id: str, topic: Topic, partition: int) -> None:
        self._settings = settings
        self._group_id = group_id
        self._place = (topic.full_name(settings.topic_prefix), partition)

    def records(self, start: int = 0) -> Generator[Message]:
        """Every record, from ``start`` to the one that is last when this is called.

        Raises:
            ServiceUnavailableError: the cluster does not answer.
        """
        low, end = self._watermarks()
        if max(low, start) < end:
            with closing(self._consumer()) as consumer:
                yield from self._messages(consumer, max(low, start), end)

    def ranges(self, ranges: Sequence[tuple[int, int]], stopped: threading.Event) -> Iterator[LogRecord]:
        """The records of ascending ranges of offsets (both ends inclusive), as far as they are in the log.

        Ends early once ``stopped`` is set.

        Raises:
            ServiceUnavailableError: the cluster does not answer.
        """
        if not ranges:
            return
        low, high = self._watermarks()
        with closing(self._consumer()) as consumer:
            for first, last in ranges:
                end = min(last + 1, high)
                if max(first, low) >= end:
                    continue
                for message in self._messages(consumer, max(first, low), end, stopped):
                    offset = message.offset() or 0
                    if first <= offset < end:
                        nanos = max(message.timestamp()[1], 0) * MILLISECOND_NANOS
                        yield LogRecord(*self._place, offset, message.key(), message.value(), nanos)

    def first_logged_at(self, unix_nano: int) -> int:
        """Offset of the first record stamped at ``unix_nano`` or later; the end of the log where there is none.

        Raises:
            ServiceUnavailableError: the cluster does not answer.
        """
        low, end = self._watermarks()
        if unix_nano <= 0:
            return low

        def ask() -> int:
            asked = TopicPartition(*self._place, unix_nano // MILLISECOND_NANOS)
            with closing(self._consumer()) as consumer:
                (found,) = consumer.offsets_for_times([asked], timeout=REQUEST_TIMEOUT_S)
                return found.offset

        found = self._answered(ask)
        return found if found >= 0 else end

    def topic_id(self) -> str:
        """What tells this topic from another of the same name (KIP-516).

        Raises:
            ServiceUnavailableError: the cluster does not answer.
        """
        admin = AdminClient(common_config(self._settings))

        def ask() -> str:
            asked = admin.describe_topics(TopicCollection([self._place[0]]), request_timeout=REQUEST_TIMEOUT_S)
            return str(asked[self._place[0]].result().topic_id)

        return self._answered(ask)

    def committed(self) -> int:
        """The group's next offset: the committed one, or the first there is.

        Raises:
            ServiceUnavailableError: the cluster does not answer.
        """

        def ask() -> int:
            with closing(self._consumer()) as consumer:
                (place,) = consumer.committed([TopicPartition(*self._place)], timeout=REQUEST_TIMEOUT_S)
                if place.error is not None:
                    raise KafkaException(place.error)
                return place.offset

        offset = self._answered(ask)
        first, _ = self._watermarks()
        return max(offset, first)

    def missing_between(self, first: int, end: int) -> bool:
        """Whether a record lies at ``first`` or above and below ``end``."""
        with closing(self._consumer()) as consumer:
            low, _ = self._watermarks()
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

    def _messages(
        self, consumer: Consumer, first: int, end: int, stopped: threading.Event | None = None
    ) -> Iterator[Message]:
        """What lies at ``first`` or above, until ``end`` is passed (maybe by some records) or ``stopped`` is set."""
        consumer.assign([TopicPartition(*self._place, first)])
        waited_s = 0.0
        while self._position(consumer) < end and not (stopped is not None and stopped.is_set()):
            messages = consumer.consume(RECORDS_PER_POLL_MAX, POLL_TIMEOUT_S)
            waited_s = 0.0 if messages else waited_s + POLL_TIMEOUT_S
            if waited_s > STALL_TIMEOUT_S:
                raise self._unavailable(f"no record for {STALL_TIMEOUT_S:g} s, although {end} is not reached")
            for message in messages:
                if message.error() is None:
                    yield message

    def _consumer(self) -> Consumer:
        config = consumer_config(self._settings, group_id=self._group_id)
        limits = {"queued.max.messages.kbytes": AHEAD_KIB_MAX, "fetch.message.max.bytes": FETCH_BYTES_MAX}
        return Consumer(config | limits)

    def _watermarks(self) -> tuple[int, int]:
        def ask() -> tuple[int, int]:
            # One that met a broker before it served its partitions may take a while to believe that it does.
            with closing(self._consumer()) as consumer:
                return consumer.get_watermark_offsets(TopicPartition(*self._place), timeout=REQUEST_TIMEOUT_S)

        return self._answered(ask)

    def _answered(self, ask: Callable[[], T]) -> T:
        """The answer to ``ask``, which is asked again for as long as a broker's restart may take.

        Raises:
            ServiceUnavailableError: none came within ``REQUEST_TIMEOUT_S``, or one that does not pass.
        """
        until_s = time.monotonic() + REQUEST_TIMEOUT_S
        while True:
            try:
                return ask()
            except KafkaException as error:
                if error.args[0].code() not in PASSING or time.monotonic() > until_s:
                    raise self._unavailable(error) from error
            time.sleep(RETRY_INTERVAL_S)

    def _position(self, consumer: Consumer) -> int:
        (place,) = consumer.position([TopicPartition(*self._place)])
        return place.offset  # negative before the first record

    def _unavailable(self, why: object) -> ServiceUnavailableError:
        topic, partition = self._place
        return kafka_unavailable(why, what=f"partition {partition} of {topic!r} cannot be read")
