"""A batch goes into the file in one transaction."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
from confluent_kafka import Message

from lightstream.runtime.clock import Clock
from lightstream.runtime.kafka import logged_unix_nano
from lightstream.runtime.large_records import whole_trajectory
from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import ArtefactError, DecodeError, UnknownSchemaError
from lightstream.schemas.records import DeadLetter, DeadLetterReason, Record, Trajectory
from lightstream.schemas.topics import DEAD_LETTERS, Topic

from ..tables import tables_of
from .arrow_rows import LoggedRecord, arrow_table
from .positions import Place

__all__ = ["RECORDS_PER_CHUNK", "Batch", "BatchBuilder"]

REPORTED_BY = "view"

RECORDS_PER_CHUNK = 512
"""Records become columns so many at a time. Kept as objects until the batch is full, they fill memory, leave the
processor's caches, and the garbage collector goes over all of them again and again: 16 of 75 microseconds a row."""


@dataclass(slots=True)
class Batch:
    """Rows per table, the offsets they reach, and what could not be read."""

    tables: dict[str, pa.Table]
    next_offsets: dict[Place, int]
    dead_letters: list[DeadLetter]
    record_count: int


@dataclass(slots=True)
class BatchBuilder:
    """Collects records until they are worth a transaction.

    Args:
        codec: decodes values.
        clock: stamps dead letters.
        value_bytes_kept_max: how much of an unreadable value its dead letter keeps.
    """

    codec: Codec
    clock: Clock
    value_bytes_kept_max: int
    record_count: int = 0
    value_bytes: int = 0
    next_offsets: dict[Place, int] = field(default_factory=dict[Place, int])
    _records: dict[type[Record], list[LoggedRecord]] = field(default_factory=dict[type[Record], list[LoggedRecord]])
    _chunks: dict[str, list[pa.Table]] = field(default_factory=dict[str, list[pa.Table]])
    _dead_letters: list[DeadLetter] = field(default_factory=list[DeadLetter])

    def add(self, topic: Topic, message: Message) -> None:
        """Take one message; whatever is wrong with it becomes a dead letter, never an exception."""
        partition, offset, value = message.partition() or 0, message.offset() or 0, message.value()
        self.record_count += 1
        self.value_bytes += len(value or b"")
        self.next_offsets[topic.name, partition] = offset + 1
        if value is None and topic.cleanup == "compact":
            return  # a tombstone: the key was deleted by hand
        try:
            record = self.codec.decode(value)
        except UnknownSchemaError as error:
            self._reject(DeadLetterReason.UNKNOWN_SCHEMA, str(error), topic, message)
            return
        except DecodeError as error:
            self._reject(DeadLetterReason.NOT_AVRO, str(error), topic, message)
            return
        if type(record) not in topic.records:
            detail = f"a {type(record).__name__} has no place in {topic.name!r}"
            self._reject(DeadLetterReason.WRONG_TOPIC, detail, topic, message)
            return
        if isinstance(record, Trajectory) and record.payload_url:
            try:
                record = whole_trajectory(record, self.codec)
            except ArtefactError as error:
                self._reject(DeadLetterReason.PAYLOAD_UNAVAILABLE, str(error), topic, message)
                return
            self.value_bytes += record.payload_size_bytes
        logged = self._records.setdefault(type(record), [])
        logged.append(LoggedRecord(record, partition, offset, logged_unix_nano(message)))
        if len(logged) >= RECORDS_PER_CHUNK:
            self._to_columns(type(record))

    def reached(self, topic: Topic, partition: int, next_offset: int) -> None:
        """Everything below ``next_offset`` was seen, transaction markers included."""
        place = topic.name, partition
        self.next_offsets[place] = max(next_offset, self.next_offsets.get(place, 0))

    def build(self) -> Batch:
        """The batch as Arrow tables. The builder is used up."""
        for record in list(self._records):
            self._to_columns(record)
        tables = {name: pa.concat_tables(chunks) for name, chunks in self._chunks.items()}
        self._chunks = {}
        return Batch(tables, self.next_offsets, self._dead_letters, self.record_count)

    def _to_columns(self, record: type[Record]) -> None:
        logged = self._records.pop(record)
        for table in tables_of(record):
            rows = arrow_table(table, logged)
            if len(rows):
                self._chunks.setdefault(table.name, []).append(rows)

    def _reject(self, reason: DeadLetterReason, detail: str, topic: Topic, message: Message) -> None:
        value, key = message.value(), message.key()
        letter = DeadLetter(
            reason=reason,
            detail=detail,
            origin_topic=topic.name,
            origin_partition=message.partition() or 0,
            origin_offset=message.offset() or 0,
            key=key.encode() if isinstance(key, str) else key,
            value=value[: self.value_bytes_kept_max] if value is not None else None,
            value_size=len(value or b""),
            reported_by=REPORTED_BY,
            observed_unix_nano=self.clock.now_unix_nano(),
        )
        if topic is DEAD_LETTERS:
            # Reporting it there would go round forever: it becomes a row at once.
            place = LoggedRecord(letter, letter.origin_partition, letter.origin_offset, letter.observed_unix_nano)
            self._records.setdefault(DeadLetter, []).append(place)
        else:
            self._dead_letters.append(letter)
