"""A batch goes into the file in one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
from confluent_kafka import Message

from lightstream.runtime.clock import Clock
from lightstream.runtime.deletions import Deletions
from lightstream.runtime.kafka import logged_unix_nano, writer_in
from lightstream.runtime.large_records import whole_trajectory
from lightstream.runtime.settings import Settings
from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import ArtefactError, DecodeError, NewerWriterError, UnknownSchemaError
from lightstream.schemas.records import DeadLetter, DeadLetterReason, Record, RunDeleted, Trajectory
from lightstream.schemas.topics import DEAD_LETTERS, Topic

from ..tables import tables_of
from ..tables.kept import UNREAD_RECORDS
from .arrow_rows import LoggedRecord, arrow_table
from .positions import Place

REPORTED_BY = "view"

RECORDS_PER_CHUNK = 512
"""Records become columns so many at a time. Kept as objects until the batch is full, they fill memory, leave the
processor's caches, and the garbage collector goes over all of them again and again: 16 of 75 microseconds a row."""


class LoggedBytes(NamedTuple):
    """A record as it lies in the log, and the version that wrote it, where that is known."""

    topic: Topic
    partition: int
    offset: int
    logged_unix_nano: int
    key: bytes | None
    value: bytes | None
    writer: str | None


@dataclass(slots=True)
class Batch:
    """Rows per table, the offsets they reach, and unreadable records."""

    tables: dict[str, pa.Table]
    next_offsets: dict[Place, int]
    dead_letters: list[DeadLetter]
    record_count: int


_ARROW_TYPES: dict[str, pa.DataType] = {
    "VARCHAR": pa.string(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "BLOB": pa.binary(),
}
_UNREAD_TYPES = pa.schema([(name, _ARROW_TYPES[sql_type]) for name, sql_type in UNREAD_RECORDS.types.items()])


@dataclass(slots=True)
class RowBuilder:
    """Collects records as rows of the view's tables."""

    _records: dict[type[Record], list[LoggedRecord]] = field(default_factory=dict[type[Record], list[LoggedRecord]])
    _chunks: dict[str, list[pa.Table]] = field(default_factory=dict[str, list[pa.Table]])

    def add(self, logged: LoggedRecord) -> None:
        """Add the rows of one record."""
        kind = type(logged.record)
        of_kind = self._records.setdefault(kind, [])
        of_kind.append(logged)
        if len(of_kind) >= RECORDS_PER_CHUNK:
            self._to_columns(kind)

    def build(self) -> dict[str, pa.Table]:
        """Return the rows by table, and forget them."""
        for kind in list(self._records):
            self._to_columns(kind)
        tables = {name: pa.concat_tables(chunks) for name, chunks in self._chunks.items()}
        self._chunks = {}
        return tables

    def _to_columns(self, kind: type[Record]) -> None:
        logged = self._records.pop(kind)
        for table in tables_of(kind):
            rows = arrow_table(table, logged)
            if len(rows):
                self._chunks.setdefault(table.name, []).append(rows)


@dataclass(slots=True)
class BatchBuilder:
    """Collects records until they are worth a transaction.

    Args:
        codec: decodes values.
        clock: stamps dead letters.
        settings: half of the largest record is how much of an unreadable value its dead letter keeps; large
            trajectories are in the folder that they name.
        deletions: of runs; what they cover is left out, and what comes of them is noted there.
    """

    codec: Codec
    clock: Clock
    settings: Settings
    deletions: Deletions = field(default_factory=Deletions)
    record_count: int = 0
    value_bytes: int = 0
    next_offsets: dict[Place, int] = field(default_factory=dict[Place, int])
    _rows: RowBuilder = field(default_factory=RowBuilder)
    _dead_letters: list[DeadLetter] = field(default_factory=list[DeadLetter])
    _unread: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])

    def add(self, topic: Topic, message: Message) -> None:
        """Take one message; whatever is wrong with it becomes a dead letter, never an exception."""
        partition, offset, key, headers = (
            message.partition() or 0,
            message.offset() or 0,
            message.key(),
            message.headers(),
        )
        self.next_offsets[topic.name, partition] = offset + 1
        self.add_logged(
            LoggedBytes(
                topic,
                partition,
                offset,
                logged_unix_nano(message),
                key.encode() if isinstance(key, str) else key,
                message.value(),
                writer_in(headers.items() if isinstance(headers, dict) else headers),
            )
        )

    def add_logged(self, logged: LoggedBytes) -> None:
        """As :meth:`add`, for a record that lies below the offsets of the batch."""
        topic, value = logged.topic, logged.value
        self.record_count += 1
        self.value_bytes += len(value or b"")
        if value is None and topic.cleanup == "compact":
            return  # a tombstone: the key was deleted by hand
        try:
            record = self.codec.decode(value, logged.writer)
        except NewerWriterError as error:
            self._keep(error, logged)
            return
        except UnknownSchemaError as error:
            self._reject(DeadLetterReason.UNKNOWN_SCHEMA, str(error), logged)
            return
        except DecodeError as error:
            self._reject(DeadLetterReason.NOT_AVRO, str(error), logged)
            return
        if type(record) not in topic.records:
            detail = f"a {type(record).__name__} has no place in {topic.name!r}"
            self._reject(DeadLetterReason.WRONG_TOPIC, detail, logged)
            return
        if isinstance(record, RunDeleted):
            self.deletions.note(record)
        if self.deletions.covers(record, topic, logged.partition, logged.offset):
            return
        if isinstance(record, Trajectory) and record.payload_url:
            try:
                record = whole_trajectory(record, self.codec, self.settings)
            except ArtefactError as error:
                self._reject(DeadLetterReason.PAYLOAD_UNAVAILABLE, str(error), logged)
                return
            self.value_bytes += record.payload_size_bytes
        self._rows.add(LoggedRecord(record, logged.partition, logged.offset, logged.logged_unix_nano))

    def reached(self, topic: Topic, partition: int, next_offset: int) -> None:
        """Everything below ``next_offset`` was seen, transaction markers included."""
        place = topic.name, partition
        self.next_offsets[place] = max(next_offset, self.next_offsets.get(place, 0))

    def build(self) -> Batch:
        """The batch as Arrow tables. The builder is used up."""
        tables = self._rows.build()
        if self._unread:
            tables[UNREAD_RECORDS.name] = pa.Table.from_pylist(self._unread, _UNREAD_TYPES)
        return Batch(tables, self.next_offsets, self._dead_letters, self.record_count)

    def _keep(self, error: NewerWriterError, logged: LoggedBytes) -> None:
        """The record becomes a row as it is, to be read once its schema is known here."""
        place = {"topic": logged.topic.name, "log_partition": logged.partition, "log_offset": logged.offset}
        content = {"logged_unix_nano": logged.logged_unix_nano, "key": logged.key, "value": logged.value}
        self._unread.append(place | content | {"schema": error.schema, "writer": error.writer})

    def _reject(self, reason: DeadLetterReason, detail: str, logged: LoggedBytes) -> None:
        topic, value = logged.topic, logged.value
        letter = DeadLetter(
            reason=reason,
            detail=detail,
            origin_topic=topic.name,
            origin_partition=logged.partition,
            origin_offset=logged.offset,
            key=logged.key,
            value=value[: self.settings.record_bytes_max // 2] if value is not None else None,
            value_size=len(value or b""),
            reported_by=REPORTED_BY,
            observed_unix_nano=self.clock.now_unix_nano(),
        )
        if topic is DEAD_LETTERS:
            # Reporting it there would go round forever: it becomes a row at once.
            place = LoggedRecord(letter, letter.origin_partition, letter.origin_offset, letter.observed_unix_nano)
            self._rows.add(place)
        else:
            self._dead_letters.append(letter)
