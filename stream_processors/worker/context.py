"""The context that a worker's handlers share: settings, clients and clock, decoding and dead letters."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial

from lightstream.runtime.clock import Clock
from lightstream.runtime.kafka import KEY_BYTES_MAX, BatchPublisher, Instead, Outgoing, letter_instead, smaller_letter
from lightstream.runtime.settings import Settings
from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import DecodeError, NewerWriterError, RecordTooLargeError, UnknownSchemaError
from lightstream.schemas.records import DeadLetter, DeadLetterReason, Record
from lightstream.schemas.topics import DEAD_LETTERS, Topic
from lightstream.schemas.valid_text import valid_text

from .inbox import LogRecord
from .log_reader import LogReader
from .outbox import Outbox

logger = logging.getLogger(__name__)


class Unusable(Exception):  # noqa: N818  # not an error of ours: a bad record is data
    """A record that cannot be used.

    Attributes:
        reason: the dead letter's code.
    """

    def __init__(self, reason: DeadLetterReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """Settings, clients and clock.

    Attributes:
        group_id: the consumer group whose committed offsets count.
    """

    settings: Settings
    publisher: BatchPublisher
    codec: Codec
    clock: Clock
    group_id: str

    def outbox(self) -> Outbox:
        """An outbox for one batch."""
        return Outbox(self.publisher)

    def reader(self, topic: Topic, partition: int) -> LogReader:
        """A reader of a partition, alongside Faust's consumer."""
        return LogReader(self.settings, self.group_id, topic, partition)

    def decode(self, topic: Topic, record: LogRecord) -> Record:
        """The record, if it is of a type that ``topic`` carries.

        Raises:
            Unusable: it is not.
            NewerWriterError: only another version of this worker can read it.
            ServiceUnavailableError: a Schema Registry is set and does not answer; the record may be good.
        """
        try:
            decoded = self.codec.decode(record.value, record.writer)
        except NewerWriterError:
            raise
        except UnknownSchemaError as error:
            raise Unusable(DeadLetterReason.UNKNOWN_SCHEMA, str(error)) from error
        except DecodeError as error:
            raise Unusable(DeadLetterReason.NOT_AVRO, str(error)) from error
        if not isinstance(decoded, topic.records):
            names = ", ".join(known.__name__ for known in topic.records)
            detail = f"a {type(decoded).__name__} does not belong in {topic.name!r}, which carries {names}"
            raise Unusable(DeadLetterReason.WRONG_TOPIC, detail)
        return decoded

    async def dead_letter(
        self, outbox: Outbox, topic: Topic, record: LogRecord, unusable: Unusable, reported_by: str
    ) -> None:
        """Send ``record`` as a dead letter: whole, with reason and origin. The same record always has the same key."""
        key = f"{topic.name}-{record.partition}-{record.offset}"
        logger.warning("dead letter %s (%s): %s", key, unusable.reason.value, unusable)
        value = record.value or b""
        letter = DeadLetter(
            reason=unusable.reason,
            detail=valid_text(str(unusable)),
            origin_topic=topic.name,
            origin_partition=record.partition,
            origin_offset=record.offset,
            key=None if record.key is None else record.key[:KEY_BYTES_MAX],
            value=value[: self.settings.record_bytes_max // 2],
            value_size=len(value),
            reported_by=reported_by,
            observed_unix_nano=self.clock.now_unix_nano(),
        )
        await outbox.send(DEAD_LETTERS, key, letter, instead=smaller_letter(self.codec, DEAD_LETTERS, key, letter))

    def or_letter(self, topic: Topic, key: str, record: Record) -> Instead:
        """For a record that cannot be cut: if ``topic`` does not take it, a dead letter goes out."""
        return partial(self.letter_instead, topic, key, record)

    def letter_instead(self, topic: Topic, key: str, record: Record, error: RecordTooLargeError) -> Outgoing:
        """The dead letter of a record of ours that ``topic`` does not take, however small it was made."""
        logger.error("a record of %s is a dead letter now: %s", key, error)
        return letter_instead(
            self.codec,
            Outgoing(topic, key, self.codec.encode(record)),
            DeadLetterReason.TOO_LARGE,
            error.message,
            value_bytes_max=error.limit_bytes // 2,
            reported_by="worker",
        )
