"""Reads a partition directly, alongside Faust's consumer: states to recover from, committed offsets, gaps."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from typing import Final

from confluent_kafka import Consumer, KafkaException, Message, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from lightstream.runtime.kafka import (
    ANSWER_TIMEOUT_S,
    OffsetRange,
    PartitionReader,
    answered,
    common_config,
    consumer_config,
    logged_unix_nano,
    writer_in,
)
from lightstream.runtime.settings import Settings
from lightstream.schemas.topics import Topic

from .inbox import LogRecord

AHEAD_KIB_MAX = 8192
"""Fetched and not yet taken: all partitions recover at once, and 64 MiB each, the default, would be most of memory."""

FETCH_BYTES_MAX = 1024 * 1024
"""Per request, compressed: states shrink twentyfold, and an answer of 32 MiB, as clients ask for otherwise, would be a
million of them in memory at once. A larger record still comes, alone."""

LIMITS: Final = {"queued.max.messages.kbytes": AHEAD_KIB_MAX, "fetch.message.max.bytes": FETCH_BYTES_MAX}


class LogReader:
    """Blocking reads of one partition, and questions about the worker's group. Outlasts a broker's restart."""

    def __init__(self, settings: Settings, group_id: str, topic: Topic, partition: int) -> None:
        self._settings = settings
        self._group_id = group_id
        self._partition = (topic.full_name(settings.topic_prefix), partition)
        self._reader = PartitionReader(settings, topic, partition, group_id=group_id, limits=LIMITS)

    def records(self, start: int = 0) -> Generator[Message]:
        """Every record, from ``start`` to the one that is last when the reading begins.

        Raises:
            ServiceUnavailableError: the cluster does not answer.
        """
        return self._reader.records(start)

    def ranges(self, ranges: Sequence[OffsetRange], stopped: threading.Event) -> Iterator[LogRecord]:
        """The records of ascending ranges of offsets, as far as they are in the log.

        Ends early once ``stopped`` is set.

        Raises:
            ServiceUnavailableError: the cluster does not answer.
        """
        for message in self._reader.ranges(ranges, stopped):
            offset, key, value = message.offset() or 0, message.key(), message.value()
            headers = message.headers()
            writer = writer_in(headers.items() if isinstance(headers, dict) else headers)
            yield LogRecord(*self._partition, offset, key, value, logged_unix_nano(message), writer)

    def first_logged_at(self, unix_nano: int) -> int:
        """Offset of the first record stamped at ``unix_nano`` or later; the end of the log where there is none.

        Raises:
            ServiceUnavailableError: the cluster does not answer.
        """
        return self._reader.first_logged_at(unix_nano)

    def missing_between(self, first: int, end: int) -> bool:
        """Whether a record lies at ``first`` or above and below ``end``.

        Raises:
            ServiceUnavailableError: the cluster does not answer.
        """
        with closing(self._reader.ranges([(first, end - 1)])) as found:
            return next(found, None) is not None

    def topic_id(self) -> str:
        """The id that tells this topic from another of the same name (KIP-516).

        Raises:
            ServiceUnavailableError: the cluster does not answer.
        """
        name, _ = self._partition
        admin = AdminClient(common_config(self._settings))

        def ask() -> str:
            answers = admin.describe_topics(TopicCollection([name]), request_timeout=ANSWER_TIMEOUT_S)
            return str(answers[name].result().topic_id)

        return answered(ask, what=f"{name!r} cannot be described")

    def committed(self) -> int:
        """The group's next offset: the committed one, or the first there is.

        Raises:
            ServiceUnavailableError: the cluster does not answer.
        """
        return max(self.known_committed() or 0, self.first())

    def first(self) -> int:
        """The first offset there is.

        Raises:
            ServiceUnavailableError: the cluster does not answer.
        """
        return self._reader.watermarks()[0]

    def end(self) -> int:
        """The offset that comes next.

        Raises:
            ServiceUnavailableError: the cluster does not answer.
        """
        return self._reader.watermarks()[1]

    def known_committed(self) -> int | None:
        """The offset that the group committed; ``None`` where it never did, or the cluster has forgotten it.

        Raises:
            ServiceUnavailableError: the cluster does not answer.
        """
        name, partition = self._partition

        def ask() -> int:
            with closing(Consumer(consumer_config(self._settings, group_id=self._group_id))) as consumer:
                (found,) = consumer.committed([TopicPartition(*self._partition)], timeout=ANSWER_TIMEOUT_S)
                if found.error is not None:
                    raise KafkaException(found.error)
                return found.offset

        offset = answered(ask, what=f"the offset committed for partition {partition} of {name!r} cannot be read")
        return offset if offset >= 0 else None
