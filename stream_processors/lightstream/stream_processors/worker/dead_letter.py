"""Records that cannot be used become dead letters, whole, with reason and origin; the records beside them go on."""

from __future__ import annotations

from concurrent.futures import Future

from lightstream.schemas.clock import Clock
from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import DecodeError, RecordError, UnknownSchemaError
from lightstream.schemas.kafka import Position, Publisher
from lightstream.schemas.records import DeadLetter, DeadLetterReason, Record
from lightstream.schemas.settings import Settings
from lightstream.schemas.topics import DEAD_LETTERS, Topic

from .inbox import LogRecord

__all__ = ["DeadLetters", "Unusable", "decode"]


class Unusable(Exception):  # noqa: N818  # not an error of ours: a bad record is data
    """A record that cannot be used.

    Attributes:
        reason: the dead letter's code.
    """

    def __init__(self, reason: DeadLetterReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def decode(codec: Codec, topic: Topic, record: LogRecord) -> Record:
    """The record, if it is one that ``topic`` carries.

    Raises:
        Unusable: it is not.
    """
    try:
        decoded = codec.decode(record.value)
    except UnknownSchemaError as error:
        raise Unusable(DeadLetterReason.UNKNOWN_SCHEMA, str(error)) from error
    except RecordError as error:
        raise Unusable(DeadLetterReason.BROKEN_RULE, str(error)) from error
    except DecodeError as error:
        raise Unusable(DeadLetterReason.NOT_AVRO, str(error)) from error
    if not isinstance(decoded, topic.records):
        names = ", ".join(known.__name__ for known in topic.records)
        detail = f"a {type(decoded).__name__} does not belong in {topic.name!r}, which carries {names}"
        raise Unusable(DeadLetterReason.WRONG_TOPIC, detail)
    return decoded


class DeadLetters:
    """Writes dead letters of one processor."""

    def __init__(self, publisher: Publisher, clock: Clock, settings: Settings, reported_by: str) -> None:
        self._publisher = publisher
        self._clock = clock
        self._value_bytes_max = settings.record_bytes_max // 2
        self._reported_by = reported_by

    def send(self, topic: Topic, record: LogRecord, unusable: Unusable) -> Future[Position]:
        """Set ``record`` of ``topic`` aside. The same record gives the same key, however often it is seen."""
        value = record.value or b""
        letter = DeadLetter(
            reason=unusable.reason,
            detail=str(unusable),
            origin_topic=topic.name,
            origin_partition=record.partition,
            origin_offset=record.offset,
            key=record.key,
            value=value[: self._value_bytes_max],
            value_size=len(value),
            reported_by=self._reported_by,
            observed_unix_nano=self._clock.now_unix_nano(),
        )
        key = f"{topic.name}-{record.partition}-{record.offset}"
        return self._publisher.publish(DEAD_LETTERS, key, letter)
