"""Writes records to Kafka: durable, ordered per key, bounded in memory, safe after a fork."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import threading
import time
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from lightstream.runtime.schema_registry import codec_for
from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import BackpressureError, PublishError, RecordTooLargeError, ServiceUnavailableError
from lightstream.schemas.records import DeadLetter, Record
from lightstream.schemas.topics import Topic

from ..settings import Settings
from ._reports import Batch, Report, is_refusal, loss_of, position_of, report_to
from .config import Compression, producer_config
from .publishing import BY_KEY, Delivered, Headers, Instead, Outgoing, Position
from .refused_records import RefusedRecords
from .smaller_letters import smaller_letter
from .writer_header import with_writer

logger = logging.getLogger(__name__)

POLL_INTERVAL_S = 0.1
"""Delivery reports wake the poll at once; this only bounds how long a stop takes to be noticed."""

ID_TIMEOUT_S = 0.5
"""For each of the two answers that :func:`_hasten_producer_id` waits for. Without them the id comes as late as this."""

PURGE_TIMEOUT_S = 1.0
"""For the reports of what is given up: the client makes them itself, and asks no broker."""

RECORD_OVERHEAD_BYTES_MAX = 512
"""Key, headers and batch framing that the broker counts in addition to the value."""


class KafkaPublisher:
    """A :class:`Publisher` and :class:`RecordSink` on Kafka. Thread-safe; one per process is enough.

    A broker that restarts within ``settings.publish_timeout_s`` costs nothing but time. After a fork the child has a
    producer of its own and none of the parent's records.

    Args:
        settings: names the cluster; resolved at the first record, not here.
        linger_ms: how long a record may wait for others to share its batch, in whole milliseconds: librdkafka waits
            two for 0.1 as for 1. With 0, what is handed over in a row still shares requests.
        compression: of each batch.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        codec: Codec | None = None,
        linger_ms: float = 5.0,
        compression: Compression = "zstd",
    ) -> None:
        self._settings = settings
        self._codec = codec or codec_for(settings)
        self._linger_ms = linger_ms
        self._compression: Compression = compression
        self._closed = False
        self._reset()
        _PUBLISHERS.add(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._producer: Producer | None = None
        self._poller: threading.Thread | None = None
        self._closing = threading.Event()
        self._refused: RefusedRecords | None = None

    def send(
        self, topic: Topic, key: str, record: Record, delivered: Delivered, *, instead: Instead | None = None
    ) -> None:
        """As :meth:`publish`, for many records: 4 microseconds cheaper than a future."""
        outgoing = Outgoing(topic, key, self._codec.encode(record), instead=instead)
        self._hand_over(outgoing, report_to(delivered))

    def send_all(self, records: Sequence[Outgoing], delivered: Sequence[Delivered]) -> int:
        """Hand over encoded records in a row; each is reported to the callback at its place in ``delivered``.

        Returns:
            How many were handed over: fewer than all where the send buffer is full. One that the client refuses for
            another reason counts, and is reported as lost.

        Raises:
            RecordTooLargeError: a record is over the limit; none was sent.
            ServiceUnavailableError: no cluster is named, and none is announced, or this was closed; none was sent.
        """
        reports = list(map(report_to, delivered))
        return self._produce_all(records, reports)

    def publish(
        self,
        topic: Topic,
        key: str,
        record: Record | None,
        *,
        headers: Headers | None = None,
        partition: int = BY_KEY,
        instead: Instead | None = None,
    ) -> Future[Position]:
        """Hand over one record; the future resolves when it is durable, or fails with :class:`PublishError`.

        Returns at once; nothing blocks but a full buffer, which raises instead.

        Args:
            record: ``None`` for an empty record, which in a compacted topic takes the key's place and then goes.
            headers: sent with the record, for readers who decide by them whether to decode it.
            partition: the one to write to, whatever the key says.
            instead: makes something smaller of a record that the broker finds too large, as of :class:`Outgoing`. A
                dead letter is cut in any case.

        Raises:
            RecordTooLargeError: the encoded record is over ``settings.record_bytes_max``; nothing was sent.
            BackpressureError: the send buffer is full; nothing was sent.
            ServiceUnavailableError: no cluster is named, and none is announced, or this was closed; nothing was sent.
            RecordError: the record cannot be encoded; nothing was sent.
        """
        value = None if record is None else self._codec.encode(record)
        if instead is None and isinstance(record, DeadLetter):
            instead = smaller_letter(self._codec, topic, key, record)
        return self._published(Outgoing(topic, key, value, headers, partition, instead))

    def encoded(self, topic: Topic, record: Record) -> bytes:
        """The record as :meth:`publish_encoded` takes it, for callers who write several, all or none.

        Raises:
            RecordTooLargeError: it is over ``settings.record_bytes_max``.
            RecordError: it cannot be encoded.
        """
        value = self._codec.encode(record)
        self._check_size(Outgoing(topic, "", value))
        return value

    def publish_encoded(
        self, topic: Topic, key: str, value: bytes | None, *, headers: Headers | None = None, partition: int = BY_KEY
    ) -> Future[Position]:
        """As :meth:`publish`, for a record that is already encoded."""
        return self._published(Outgoing(topic, key, value, headers, partition))

    def _published(self, record: Outgoing) -> Future[Position]:
        future: Future[Position] = Future()
        future.set_running_or_notify_cancel()

        def report(error: PublishError | None, message: Message | None, topic: Topic) -> None:
            if error is not None or message is None:
                future.set_exception(error or loss_of(topic, None))
            else:
                future.set_result(position_of(topic, message))

        self._hand_over(record, report)
        return future

    def publish_all(self, records: Sequence[Outgoing]) -> tuple[int, Future[list[Position]]]:
        """Hand over encoded records in a row, so that they share requests without waiting for each other.

        Returns:
            How many were handed over: fewer than all where the send buffer is full. And a future that resolves when
            these are durable, with their positions in the order of ``records``, or fails with the first
            :class:`PublishError` once all of them are durable or lost.

        Raises:
            RecordTooLargeError: a record is over the limit; none was sent.
            ServiceUnavailableError: no cluster is named, and none is announced, or this was closed; none was sent.
        """
        batch = Batch(len(records))
        count = self._produce_all(records, [partial(batch.report, number) for number in range(len(records))])
        batch.end(count)
        return count, batch.durable

    def _produce_all(self, records: Sequence[Outgoing], reports: Sequence[Report]) -> int:
        """Hand over as many records as the send buffer has room for; returns their number.

        An error is raised before the first is handed over.
        """
        for record in records:
            self._check_size(record)
        if records:
            self._started(records[0].topic)
        for number, (record, report) in enumerate(zip(records, reports, strict=True)):
            if not self._produce_one(record, report):
                return number
        return len(records)

    def _produce_one(self, record: Outgoing, report: Report) -> bool:
        """True if the send buffer had room for the record."""
        try:
            self._produce(record, report)
        except BufferError:
            return False
        except KafkaException as error:
            self._reported(record, report, error.args[0], None)
        return True

    def _hand_over(self, record: Outgoing, report: Report) -> None:
        self._check_size(record)
        try:
            self._produce(record, report)
        except BufferError as error:
            raise BackpressureError(
                f"the send buffer of {self._settings.send_buffer_bytes_max:,} bytes is full.",
                next_step="Is Kafka reachable? LIGHTSTREAM_SEND_BUFFER_BYTES_MAX sets the size.",
            ) from error
        except KafkaException as error:
            raise PublishError(f"a record for {record.topic.name!r} was not accepted: {error}.") from error

    def _reported(self, record: Outgoing, report: Report, error: KafkaError | None, message: Message | None) -> None:
        """The client's delivery callback: what was refused is not lost yet."""
        if error is None and message is not None:
            report(None, message, record.topic)
        elif error is not None and is_refusal(error) and self._refused is not None:
            self._refused.take(record, report, error)
        else:
            report(loss_of(record.topic, error), None, record.topic)

    def _produce(self, record: Outgoing, report: Report) -> None:
        name = record.topic.full_name(self._settings.topic_prefix)
        producer = self._started(record.topic)
        reported = partial(self._reported, record, report)
        headers = with_writer(record.headers)
        producer.produce(name, record.value, record.key, record.partition, reported, headers=headers)

    def _check_size(self, record: Outgoing) -> None:
        limit_bytes = self._settings.record_bytes_max - RECORD_OVERHEAD_BYTES_MAX
        if record.value is not None and len(record.value) > limit_bytes:
            raise RecordTooLargeError(record.topic.name, len(record.value), limit_bytes)

    def flush(self, timeout_s: float) -> int:
        """Wait until every record is durable or has failed, at most ``timeout_s`` seconds."""
        if self._producer is None:
            return 0
        until_s = time.monotonic() + timeout_s
        remaining = self._producer.flush(timeout_s)
        refused = self._refused
        return remaining if refused is None else remaining + refused.wait(max(0.0, until_s - time.monotonic()))

    def close(self, timeout_s: float = 10.0) -> int:
        """Flush and stop; no record is taken any more. A second call does nothing.

        Returns:
            How many records were not durable in time. These are given up: their writers are told of a
            :class:`PublishError`, though a broker may have them all the same.
        """
        with self._lock:
            producer, self._producer, self._closed = self._producer, None, True
        if producer is None:
            return 0
        until_s = time.monotonic() + timeout_s
        remaining = producer.flush(timeout_s)
        if self._refused is not None:
            remaining += self._refused.wait(max(0.0, until_s - time.monotonic()))
            self._refused.close()
        self._closing.set()
        if self._poller is not None:
            self._poller.join(timeout=10 * POLL_INTERVAL_S)
        producer.purge()
        producer.flush(PURGE_TIMEOUT_S)
        return remaining

    def _started(self, topic: Topic) -> Producer:
        producer = self._producer
        if producer is None:
            with self._lock:
                producer = self._producer
                if self._closed:
                    raise ServiceUnavailableError("this writer to Kafka was closed.")
                if producer is None:
                    config = producer_config(self._settings, linger_ms=self._linger_ms, compression=self._compression)
                    producer = Producer(config)
                    self._refused = RefusedRecords(self._settings, config, self._codec)
                    self._closing.clear()
                    name = topic.full_name(self._settings.topic_prefix)
                    self._poller = threading.Thread(
                        target=_poll, args=(producer, name, self._closing), name="lightstream-publisher", daemon=True
                    )
                    self._poller.start()
                    self._producer = producer
        return producer


def _poll(producer: Producer, first_topic: str, closing: threading.Event) -> None:
    """Serve delivery reports until the publisher closes."""
    _hasten_producer_id(producer, first_topic)
    while not closing.is_set():
        try:
            producer.poll(POLL_INTERVAL_S)
        except Exception:  # a callback must not raise; the others still have to be called
            logger.exception("a delivery callback failed")


def _hasten_producer_id(producer: Producer, topic: str) -> None:
    """Spare a new producer's first record half a second.

    librdkafka asks for the id of an idempotent producer when metadata arrive. The first arrive over the connection to
    the bootstrap address, which it closes (from 2.10 on) before it asks; then it looks again half a second later, or
    with the next metadata. Two answers in a row end the wait after some 50 ms.
    """
    with contextlib.suppress(KafkaException):  # no broker answers: the records wait for one, or fail, as ever
        for _ in range(2):
            producer.list_topics(topic, timeout=ID_TIMEOUT_S)


_PUBLISHERS: weakref.WeakSet[Any] = weakref.WeakSet()
_INHERITED: list[Producer] = []


def _after_fork_in_child() -> None:
    """Start anew without destroying a client of the parent.

    Its threads do not exist here, so that librdkafka's destructor would wait for them or crash. References to our own
    are kept; whatever else was garbage at the fork (a closed consumer in a cycle, say) is exempt from collection.
    """
    for publisher in list(_PUBLISHERS):
        if publisher._producer is not None:
            _INHERITED.append(publisher._producer)
        publisher._reset()
    if _PUBLISHERS:
        gc.freeze()


os.register_at_fork(after_in_child=_after_fork_in_child)
