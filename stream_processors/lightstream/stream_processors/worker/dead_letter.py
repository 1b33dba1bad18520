"""Records that cannot be used become dead letters, whole, with reason and origin; the other records go on."""

from __future__ import annotations

from lightstream.runtime.settings import Settings
from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import DecodeError, UnknownSchemaError
from lightstream.schemas.records import DeadLetter, DeadLetterReason, Record
from lightstream.schemas.topics import Topic
from lightstream.schemas.valid_text import valid_text

from .inbox import LogRecord

__all__ = ["Unusable", "dead_letter", "dead_letter_key", "decode"]

KEY_BYTES_MAX = 64 * 1024


class Unusable(Exception):  # noqa: N818  # not an error of ours: a bad record is data
    """A record that cannot be used.

    Attributes:
        reason: the dead letter's code.
    """

    def __init__(self, reason: DeadLetterReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def decode(codec: Codec, topic: Topic, record: LogRecord) -> Record:
    """The record, if it is of a type that ``topic`` carries.

    Raises:
        Unusable: it is not.
        ServiceUnavailableError: a Schema Registry is set and does not answer; the record may be good.
    """
    try:
        decoded = codec.decode(record.value)
    except UnknownSchemaError as error:
        raise Unusable(DeadLetterReason.UNKNOWN_SCHEMA, str(error)) from error
    except DecodeError as error:
        raise Unusable(DeadLetterReason.NOT_AVRO, str(error)) from error
    if not isinstance(decoded, topic.records):
        names = ", ".join(known.__name__ for known in topic.records)
        detail = f"a {type(decoded).__name__} does not belong in {topic.name!r}, which carries {names}"
        raise Unusable(DeadLetterReason.WRONG_TOPIC, detail)
    return decoded


def dead_letter_key(topic: Topic, record: LogRecord) -> str:
    """The same record has the same key, however often it is set aside."""
    return f"{topic.name}-{record.partition}-{record.offset}"


def dead_letter(
    topic: Topic, record: LogRecord, unusable: Unusable, *, reported_by: str, now_unix_nano: int, settings: Settings
) -> DeadLetter:
    """The dead letter of ``record``, which lies in ``topic``."""
    value = record.value or b""
    return DeadLetter(
        reason=unusable.reason,
        detail=valid_text(str(unusable)),
        origin_topic=topic.name,
        origin_partition=record.partition,
        origin_offset=record.offset,
        key=None if record.key is None else record.key[:KEY_BYTES_MAX],
        value=value[: settings.record_bytes_max // 2],
        value_size=len(value),
        reported_by=reported_by,
        observed_unix_nano=now_unix_nano,
    )
