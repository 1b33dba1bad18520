"""The one way in which topics are followed: batches of records as they come, and one rule for errors."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import DecodeError, NewerWriterError
from lightstream.schemas.records import Record
from lightstream.schemas.topics import Topic

from ..settings import Settings
from .config import common_config, consumer_config
from .read_errors import ANSWER_TIMEOUT_S, RETRY_INTERVAL_S, ReadErrors, answered, kafka_user
from .unavailable import kafka_unavailable
from .writer_header import decoded, unread_reason

logger = logging.getLogger(__name__)

RECORDS_PER_POLL_MAX = 1000

CHECK_INTERVAL_S = 10.0
"""Interval between questions whether the topics are still there: librdkafka tells of a deleted one half a minute later
or never, and of one that was made again not at all."""

RECHECK_INTERVAL_S = 1.0
"""As above while something is wrong, and until the topics were seen for the first time."""

CHECK_TIMEOUT_S = 5.0
"""Time for the answer; :meth:`TopicTail.close` waits as long for the last one."""

START_PATIENCE_S = 60.0
"""Time that a cluster may take to tell its topics when a reader starts."""

Place: TypeAlias = "tuple[str, int]"
"""Full name of a topic, and partition."""


class Reached(NamedTuple):
    """The log of a partition ended below ``offset`` when it was read so far (with read_committed: its settled part)."""

    topic: str
    partition: int
    offset: int


@dataclass(slots=True)
class TailBatch:
    """The outcome of one poll: records in the order of each partition, and which partitions were read to their end.

    A partition may have gone on within the batch: then it has records from its ``reached`` offset on.
    """

    records: list[Message] = field(default_factory=list[Message])
    reached: list[Reached] = field(default_factory=list[Reached])


class TopicTail:
    """Follows partitions that are assigned by hand. Joins no group, commits nothing. For one thread.

    A cluster that is away is waited for, and logged once (:class:`~.read_errors.ReadErrors`). What does not pass by
    itself is raised by :meth:`poll`: a topic that is missing, was deleted or made again, or is not for this user. That
    is asked of the cluster every ten seconds, without waiting for the answer.

    Args:
        topics: all that may be followed.
        group_id: which group the client says it is of.
        read_committed: whether records of transactions count only once these are committed.
        limits: librdkafka's settings, where its own do not fit.

    Raises:
        ServiceUnavailableError: librdkafka refuses the settings: a certificate cannot be used, say.

    Attributes:
        known_partitions: of each topic that was found, as told last.
        undecodable: how many records :meth:`decode` could not decode.
        unread: version of Lightstream -> how many records only it can decode.
    """

    def __init__(
        self,
        settings: Settings,
        topics: Iterable[Topic],
        *,
        group_id: str,
        read_committed: bool = True,
        limits: Mapping[str, Any] | None = None,
    ) -> None:
        self._settings = settings
        self._names = {topic: topic.full_name(settings.topic_prefix) for topic in topics}
        self._errors = ReadErrors(self._names.values(), kafka_user(settings))
        self._start: dict[Place, int] = {}
        self._next: dict[Place, int] = {}
        self._reports: list[KafkaError] = []
        self._admin: AdminClient | None = None
        self._pending: dict[str, Future[Any]] = {}
        self._check_due_s = 0.0
        self._warned_of: set[str] = set()
        self.known_partitions: dict[Topic, list[int]] = {}
        self.undecodable = 0
        self.unread: Counter[str] = Counter()
        config = consumer_config(settings, group_id=group_id, read_committed=read_committed)
        own = {"enable.partition.eof": True, "error_cb": self._reports.append}
        try:
            self._consumer = Consumer(config | dict(limits or {}) | own)
        except KafkaException as error:
            raise self._errors.refused(error) from error

    def partitions(self) -> dict[Topic, list[int]]:
        """The partitions that the topics have on the cluster; asks and waits.

        Raises:
            ServiceUnavailableError: the cluster does not answer within a minute, or a topic is missing or not for
                this user.
        """
        until_s = time.monotonic() + START_PATIENCE_S
        while True:
            self._ask()
            wait(self._pending.values(), CHECK_TIMEOUT_S)
            self._hear()
            if len(self.known_partitions) == len(self._names):
                return dict(self.known_partitions)
            if time.monotonic() > until_s:
                raise kafka_unavailable(TimeoutError())
            time.sleep(RETRY_INTERVAL_S)

    def follow(self, topic: Topic, offsets: Mapping[int, int]) -> None:
        """Read these partitions of the topic too, each from its offset (which may be ``OFFSET_BEGINNING``) on.

        A partition that is followed already goes on there. Where the log has no such offset, it is read from its
        beginning. Asks a cluster that answers where the beginnings are.
        """
        name = self._names[topic]
        places = [TopicPartition(name, partition, offset) for partition, offset in sorted(offsets.items())]
        self._find_beginnings([place for place in places if place.offset == OFFSET_BEGINNING])
        if again := [place for place in places if (name, place.partition) in self._start]:
            self._consumer.incremental_unassign(again)
        for place in places:
            self._start[name, place.partition] = place.offset
            self._next.pop((name, place.partition), None)
        self._consumer.incremental_assign(places)

    def poll(self, timeout_s: float, *, records_max: int = RECORDS_PER_POLL_MAX) -> TailBatch:
        """Return records that have come; waits up to ``timeout_s`` seconds for the first one.

        Raises:
            ServiceUnavailableError: names the topic that can no longer be read, and what to do.
        """
        # consume() waits for a full batch or the timeout; a first poll() returns as soon as there is one.
        first = self._consumer.poll(timeout_s)
        messages = [] if first is None else [first, *self._consumer.consume(records_max, 0)]
        now_s = time.monotonic()
        batch = TailBatch()
        for message in messages:
            self._take(message, batch, now_s)
        for report in self._reports:
            self._errors.reported_of_cluster(report, now_s)
        self._reports.clear()
        self._check(now_s)
        return batch

    def decode(self, codec: Codec, message: Message) -> Record | None:
        """The record; ``None`` where there is none: that is counted, and logged for the first of each topic.

        A record that another version of ours wrote is counted apart (:attr:`unread`): it is passed over until that is
        installed here. Of records that say in a header whose they are, decode only those that matter.
        """
        try:
            return decoded(codec, message)
        except NewerWriterError as reason:
            self.unread[reason.writer] += 1
            if self.unread.total() == 1:
                logger.warning("%s[%s] offset %s: %s", message.topic(), message.partition(), message.offset(), reason)
            return None
        except DecodeError as reason:
            self.pass_over(message, reason)
            return None

    def pass_over(self, message: Message, reason: Exception) -> None:
        """Count a record that is none of ours, as :meth:`decode` does."""
        self.undecodable += 1
        topic = message.topic() or ""
        if topic in self._warned_of:
            return
        self._warned_of.add(topic)
        logger.warning(
            "%s[%s] offset %s is no record of ours and was passed over: %s. More of this topic are only counted here; "
            "`lightstream sql 'select * from dead_letters'` shows all.",
            topic,
            message.partition(),
            message.offset(),
            reason,
        )

    def unready(self) -> str | None:
        """Say which version is needed to read the records that were passed over; ``None`` if there are none. For any
        thread."""
        return unread_reason(dict(self.unread))

    def next_offsets(self, topic: Topic) -> dict[int, int]:
        """Partition -> the next offset to read, as far as it was read or named."""
        name = self._names[topic]
        places = self._start | self._next
        return {partition: max(0, offset) for (of, partition), offset in places.items() if of == name}

    def end_offsets(self, topic: Topic, partitions: Iterable[int]) -> dict[int, int]:
        """Partition -> where the log ends now (with read_committed: its settled part); asks and waits.

        Raises:
            ServiceUnavailableError: the cluster does not answer.
        """
        name = self._names[topic]

        def ask(partition: int) -> int:
            place = TopicPartition(name, partition)
            return self._consumer.get_watermark_offsets(place, timeout=ANSWER_TIMEOUT_S)[1]

        what = f"the end of {name!r} is not known"
        return {partition: answered(partial(ask, partition), what=what) for partition in partitions}

    def heard_end_offsets(self) -> dict[tuple[Topic, int], int]:
        """Return the end offset of each followed partition as of its last fetch; asks nobody."""
        ends: dict[tuple[Topic, int], int] = {}
        topics = {name: topic for topic, name in self._names.items()}
        for name, partition in self._start:
            _, end = self._consumer.get_watermark_offsets(TopicPartition(name, partition), cached=True)
            if end >= 0:
                ends[topics[name], partition] = end
        return ends

    @property
    def consumer_group(self) -> Any:
        """Metadata with which a transaction commits offsets for this reader's group."""
        return self._consumer.consumer_group_metadata()

    def close(self) -> None:
        """Leave the cluster; waits for the last answer, five seconds at most."""
        # librdkafka 2.16 reads a null pointer where a client ends just as an answer about topics comes.
        wait(self._pending.values())
        self._consumer.close()

    def _find_beginnings(self, places: Iterable[TopicPartition]) -> None:
        """Give each place its first offset; none to the rest where the cluster does not answer.

        librdkafka would ask too, but begins half a second later, and two seconds where it just learned of the topic.
        """
        for place in places:
            try:
                place.offset, _ = self._consumer.get_watermark_offsets(place, timeout=CHECK_TIMEOUT_S)
            except KafkaException:
                return

    def _take(self, message: Message, batch: TailBatch, now_s: float) -> None:
        topic, partition, offset = message.topic() or "", message.partition() or 0, message.offset() or 0
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            self._errors.reported(error, topic or None, now_s)
            return
        if offset < self._next.get((topic, partition), 0):
            raise self._errors.replaced(topic)
        self._errors.read(topic, now_s)
        if error is None:
            self._next[topic, partition] = offset + 1
            batch.records.append(message)
        else:  # the last records of the log may be no data
            self._next[topic, partition] = offset
            batch.reached.append(Reached(topic, partition, offset))

    def _check(self, now_s: float) -> None:
        """Hear the cluster's answer if it is there, and ask again if that is due."""
        if self._pending:
            if all(future.done() for future in self._pending.values()):
                self._hear()
                is_calm = len(self.known_partitions) == len(self._names) and not self._errors.is_waiting
                self._check_due_s = now_s + (CHECK_INTERVAL_S if is_calm else RECHECK_INTERVAL_S)
            return
        if self._errors.is_waiting:
            self._check_due_s = min(self._check_due_s, now_s + RECHECK_INTERVAL_S)
        if now_s >= self._check_due_s:
            self._ask()

    def _ask(self) -> None:
        if self._admin is None:
            self._admin = AdminClient(common_config(self._settings))
        names = TopicCollection(list(self._names.values()))
        self._pending = self._admin.describe_topics(names, request_timeout=CHECK_TIMEOUT_S)

    def _hear(self) -> None:
        """Take in what was answered; what was not counts as no answer."""
        requests, self._pending = self._pending, {}
        now_s = time.monotonic()
        for topic, name in self._names.items():
            try:
                description = requests[name].result(0)
            except KafkaException as error:
                self._errors.described(name, error.args[0], now_s)
            except TimeoutError:
                continue
            else:
                self._errors.described(name, str(description.topic_id), now_s)
                self.known_partitions[topic] = sorted(partition.id for partition in description.partitions)
