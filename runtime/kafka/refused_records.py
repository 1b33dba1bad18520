"""Records that a broker refuses for good: sent again by themselves, or something smaller in their place."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

# The module re-exports these without saying so; its stubs know it.
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]  # pyright: ignore[reportPrivateImportUsage]  # isort: skip

from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import PublishError, RecordTooLargeError
from lightstream.schemas.records import DeadLetterReason
from lightstream.schemas.topics import DEAD_LETTERS

from ..settings import Settings
from ._reports import Report, is_refusal, is_too_large, loss_of
from .config import common_config
from .publishing import Outgoing
from .smaller_letters import letter_instead
from .writer_header import with_writer

logger = logging.getLogger(__name__)

CONFIG_TIMEOUT_S = 5.0
LIMIT_KNOWN_S = 10.0
"""A topic's limit is asked for again after this; a person may have changed it."""

POLL_S = 0.1
REPORTED_BY = "publisher"
INSTEAD_MAX = 8
"""Smaller records that are tried in a row; the cuts of every kind of record are fewer."""


class _Refused(NamedTuple):
    record: Outgoing
    report: Report
    error: KafkaError
    is_alone: bool
    tries: int


class RefusedRecords:
    """Handles records that a broker refuses for good. Thread-safe.

    The limit of a topic (``max.message.bytes``) is that of a batch, after compression, and may be below ours. So each
    record of a batch that was too large is sent again alone. One that is too large even so is replaced by what its
    ``instead`` makes of it, until that fits. One that is refused for another reason (its time, a check of the broker's)
    is replaced by its dead letter. A record without ``instead`` is replaced by nothing: its writer is told of a
    :class:`RecordRefusedError`.

    Args:
        settings: names the cluster.
        config: of the publisher's producer.
        codec: writes dead letters.
    """

    def __init__(self, settings: Settings, config: dict[str, Any], codec: Codec) -> None:
        self._settings = settings
        self._codec = codec
        self._config = config | {"batch.num.messages": 1, "linger.ms": 0}
        self._changed = threading.Condition()
        self._waiting: list[_Refused] = []
        self._open = 0
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._limits: dict[str, tuple[float, int]] = {}
        self._admin: AdminClient | None = None

    def take(self, record: Outgoing, report: Report, error: KafkaError) -> None:
        """Take over a record of a batch that was refused; ``report`` is called once it is durable, or lost."""
        with self._changed:
            self._open += 1
        self._put(_Refused(record, report, error, is_alone=False, tries=0))

    def wait(self, timeout_s: float) -> int:
        """Wait until none is left, at most ``timeout_s`` seconds; returns how many are."""
        with self._changed:
            self._changed.wait_for(lambda: self._open == 0, timeout_s)
            return self._open

    def close(self) -> None:
        """Stop. Writers of what is left are told of the error that it was refused with."""
        with self._changed:
            self._is_closed = True
            remaining, self._waiting = self._waiting, []
            self._changed.notify_all()
        for refused in remaining:
            self._settle(refused, loss_of(refused.record.topic, refused.error), None)

    def _put(self, refused: _Refused) -> None:
        with self._changed:
            if not self._is_closed:
                self._waiting.append(refused)
                self._changed.notify_all()
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="lightstream-refused", daemon=True)
                    self._thread.start()
                return
        self._settle(refused, loss_of(refused.record.topic, refused.error), None)

    def _run(self) -> None:
        producer = Producer(self._config)
        while not self._is_closed:
            with self._changed:
                if not self._waiting:
                    self._changed.wait(0 if len(producer) else POLL_S)
                batch, self._waiting = self._waiting, []
            for refused in batch:
                self._try(producer, refused)
            producer.poll(POLL_S if len(producer) else 0)
        producer.flush(POLL_S)

    def _try(self, producer: Producer, refused: _Refused) -> None:
        if not refused.is_alone:
            self._send(producer, refused)
            return
        record = refused.record
        error: PublishError
        if is_too_large(refused.error):
            error = too_large = self._too_large(record)
            instead = self._smaller(record, too_large) if refused.tries < INSTEAD_MAX else None
        else:
            error = loss_of(record.topic, refused.error)
            instead = self._letter(record, error)
        if instead is None:
            logger.error("a record for %s is lost: %s", record.topic.name, error)
            self._settle(refused, error, None)
            return
        logger.warning("a record for %s goes out as another one: %s", record.topic.name, error)
        self._send(producer, refused._replace(record=instead, tries=refused.tries + 1))

    def _smaller(self, record: Outgoing, error: RecordTooLargeError) -> Outgoing | None:
        if record.instead is None:
            return None
        try:
            return record.instead(error)
        except Exception:  # it is others' code; the record's writer hears of the loss
            logger.exception("nothing smaller could be made of a record for %s", record.topic.name)
            return None

    def _letter(self, record: Outgoing, error: PublishError) -> Outgoing | None:
        """The dead letter of a record that may be replaced; ``None`` for others, and for a dead letter."""
        if record.instead is None or record.topic is DEAD_LETTERS:
            return None
        return letter_instead(
            self._codec,
            record,
            DeadLetterReason.BROKEN_RULE,
            str(error),
            value_bytes_max=self._settings.record_bytes_max // 2,
            reported_by=REPORTED_BY,
        )

    def _send(self, producer: Producer, refused: _Refused) -> None:
        record = refused.record

        def reported(error: KafkaError | None, message: Message | None) -> None:
            if error is not None and is_refusal(error):
                self._put(refused._replace(error=error, is_alone=True))
            elif error is not None or message is None:
                self._settle(refused, loss_of(record.topic, error), None)
            else:
                self._settle(refused, None, message)

        name = record.topic.full_name(self._settings.topic_prefix)
        while True:
            try:
                producer.produce(
                    name, record.value, record.key, record.partition, reported, headers=with_writer(record.headers)
                )
                return
            except BufferError:
                producer.poll(POLL_S)
            except KafkaException as error:
                reported(error.args[0], None)
                return

    def _settle(self, refused: _Refused, error: PublishError | None, message: Message | None) -> None:
        try:
            refused.report(error, message, refused.record.topic)
        except Exception:  # a callback must not raise; the others still have to be called
            logger.exception("a delivery callback failed")
        with self._changed:
            self._open -= 1
            self._changed.notify_all()

    def _too_large(self, record: Outgoing) -> RecordTooLargeError:
        size_bytes = len(record.value or b"")
        limit_bytes = self._limit_bytes(record.topic.full_name(self._settings.topic_prefix))
        # A limit above the size was changed since, or may not be asked for: something smaller is tried in any case.
        return RecordTooLargeError(record.topic.name, size_bytes, limit_bytes if limit_bytes < size_bytes else None)

    def _limit_bytes(self, name: str) -> int:
        """The topic's limit now; as large as can be where it may not be asked for."""
        known_s, limit_bytes = self._limits.get(name, (float("-inf"), 0))
        if time.monotonic() - known_s < LIMIT_KNOWN_S:
            return limit_bytes
        limit_bytes = self._settings.record_bytes_max
        with contextlib.suppress(KafkaException, KeyError, ValueError):
            self._admin = self._admin or AdminClient(common_config(self._settings))
            resource = ConfigResource(ResourceType.TOPIC, name)
            found: Any = self._admin.describe_configs([resource], request_timeout=CONFIG_TIMEOUT_S)[resource].result()
            limit_bytes = int(found["max.message.bytes"].value)
        self._limits[name] = time.monotonic(), limit_bytes
        return limit_bytes
