"""Follows the topics that OpenTelemetry Collectors write with their Kafka exporter.

A message is an OTLP request in protobuf (``otlp_proto``) or JSON (``otlp_json``), told apart by its first byte. How the
Collector partitions them does not matter: each span goes to the log under its own key. A message's offset is committed
once its spans are durable, so it may be read again; what is written twice is one span to every reader.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from lightstream.runtime.clock import SystemClock
from lightstream.runtime.kafka import Outgoing, ReadErrors, consumer_config, kafka_user
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import (
    DecodeError,
    LightstreamError,
    PublishError,
    RecordTooLargeError,
    ServiceUnavailableError,
)
from lightstream.schemas.records import DeadLetter, DeadLetterReason

from ...attribution import UNATTRIBUTED
from .intake import REPORTED_BY, Intake, decoder_of
from .responses import Signal

logger = logging.getLogger(__name__)

POLL_TIMEOUT_S = 0.2
MESSAGES_PER_CALL_MAX = 100
FETCHED_KBYTES_MAX = 64 * 1024
"""Most that librdkafka may hold ahead of us."""

METADATA_REFRESH_MS = 5_000
"""Interval at which topics that a Collector has just made are looked for; librdkafka's default is five minutes."""

RETRY_INTERVAL_S = 1.0
"""Pause before a message that Kafka did not take is tried again."""

DETAIL_CHARACTERS_MAX = 4000

MISSING_STEP = (
    "A Collector makes its topic with the first message. If none sends to this one, correct "
    "LIGHTSTREAM_GATEWAY_TRACES_TOPICS or LIGHTSTREAM_GATEWAY_LOGS_TOPICS."
)

JSON_BEGINS = b"{"
"""No protobuf message of OTLP begins so: it would be a field that none of them has."""


def is_json(value: bytes) -> bool:
    """True if a message is in the encoding ``otlp_json``."""
    return value.startswith(JSON_BEGINS)


class CollectorTopics:
    """Reads the topics that the settings name, in a thread of its own; does nothing where they name none.

    Args:
        intake: of ``loop``; makes the spans durable.
        on_failure: called, on that thread, with the error for which the topics can no longer be read. A cluster that is
            away, and a topic that is not there, are waited for, and logged once.
    """

    def __init__(
        self,
        settings: Settings,
        intake: Intake,
        loop: asyncio.AbstractEventLoop,
        on_failure: Callable[[LightstreamError], None],
    ) -> None:
        self._settings = settings
        self._intake = intake
        self._loop = loop
        self._on_failure = on_failure
        self._signals = dict.fromkeys(_names(settings.gateway_traces_topics), Signal.TRACES)
        self._signals |= dict.fromkeys(_names(settings.gateway_logs_topics), Signal.LOGS)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin where the last gateway stopped, or at the beginning of the topics."""
        if self._signals:
            self._thread = threading.Thread(target=self._run, name="lightstream-collector-topics", daemon=True)
            self._thread.start()

    async def stop(self) -> None:
        """Stop; messages that were read and are not durable yet will be read again."""
        self._stopping.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        try:
            self._read()
        except LightstreamError as error:
            self._on_failure(error)
        except Exception as error:  # nobody else hears of this thread
            logger.exception("the collectors' topics can no longer be read")
            self._on_failure(ServiceUnavailableError(f"the collectors' topics can no longer be read: {error!r}."))

    def _read(self) -> None:
        reports: list[KafkaError] = []
        errors = ReadErrors(self._signals, kafka_user(self._settings), missing_step=MISSING_STEP)
        config = consumer_config(self._settings, group_id=f"{self._settings.topic_prefix}lightstream-gateway")
        config |= {
            "queued.max.messages.kbytes": FETCHED_KBYTES_MAX,
            "topic.metadata.refresh.interval.ms": METADATA_REFRESH_MS,
            "error_cb": reports.append,
        }
        consumer = Consumer(config)
        try:
            consumer.subscribe(list(self._signals))
            while not self._stopping.is_set():
                consumed = consumer.consume(MESSAGES_PER_CALL_MAX, POLL_TIMEOUT_S)
                now_s = time.monotonic()
                messages = [message for message in consumed if _is_record(message, errors, now_s)]
                for report in reports:
                    errors.reported_of_cluster(report, now_s)
                reports.clear()
                if messages and self._take(messages):
                    _commit(consumer, messages)
        finally:
            consumer.close()

    def _take(self, messages: list[Message]) -> bool:
        """Make them durable, however long it takes; ``False`` if we were stopped before."""
        records = [record for message in messages for record in self._encoded(message)]
        while not self._stopping.is_set():
            try:
                asyncio.run_coroutine_threadsafe(self._intake.send(records), self._loop).result()
            except RecordTooLargeError as error:
                logger.error("of %d messages of the collectors' topics one is lost: %s", len(messages), error)
                return True
            except (PublishError, ServiceUnavailableError) as error:
                logger.warning("%d messages of the collectors' topics wait: %s", len(messages), error)
                self._stopping.wait(RETRY_INTERVAL_S)
            else:
                return True
        return False

    def _encoded(self, message: Message) -> list[Outgoing]:
        topic, value = message.topic() or "", message.value() or b""
        decode = decoder_of(self._signals[topic], as_json=is_json(value))
        encoder = self._intake.encoder
        try:
            decoded = decode(value, UNATTRIBUTED)
        except DecodeError as error:
            return [encoder.encode_letter(_key(message), self._dead_letter(message, error.message))]
        spans = encoder.encode_spans(decoded)
        if not decoded.rejections:
            return spans
        reasons = "; ".join(dict.fromkeys(rejection.detail for rejection in decoded.rejections))
        detail = f"{len(decoded.rejections)} items of the message were left out: {reasons[:DETAIL_CHARACTERS_MAX]}"
        return [*spans, encoder.encode_letter(_key(message), self._dead_letter(message, detail))]

    def _dead_letter(self, message: Message, detail: str) -> DeadLetter:
        value = message.value() or b""
        return DeadLetter(
            reason=DeadLetterReason.BROKEN_RULE,
            detail=detail,
            origin_topic=message.topic() or "",
            origin_partition=message.partition() or 0,
            origin_offset=message.offset() or 0,
            key=message.key(),
            value=value[: self._settings.record_bytes_max // 2],
            value_size=len(value),
            reported_by=REPORTED_BY,
            observed_unix_nano=SystemClock().now_unix_nano(),
        )


def _names(setting: str) -> list[str]:
    return [name.strip() for name in setting.split(",") if name.strip()]


def _key(message: Message) -> str:
    return f"{message.topic()}-{message.partition()}-{message.offset()}"


def _is_record(message: Message, errors: ReadErrors, now_s: float) -> bool:
    error = message.error()
    if error is not None:
        errors.reported(error, message.topic() or None, now_s)
    else:
        errors.read(message.topic() or "", now_s)
    return error is None


def _commit(consumer: Consumer, messages: list[Message]) -> None:
    ends: dict[tuple[str, int], int] = {}
    for message in messages:
        ends[message.topic() or "", message.partition() or 0] = (message.offset() or 0) + 1
    try:
        consumer.commit(offsets=[TopicPartition(*place, end) for place, end in ends.items()], asynchronous=False)
    except KafkaException as error:  # they will be read again, by us or by another gateway, and stay one span each
        logger.warning("offsets of the collectors' topics could not be committed: %s", error)
