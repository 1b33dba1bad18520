"""Records to bytes and back.

Two framings, and readers accept both:

- Avro single-object encoding (``C3 01``, then the 8-byte CRC-64-AVRO fingerprint): written when no registry is set.
- Confluent framing (``00``, then the 4-byte big-endian schema id): written when a Schema Registry is set.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any, Protocol

from fastavro import schemaless_reader

from ..distribution import installed_version
from ..errors import DecodeError, NewerWriterError, RecordError, UnknownSchemaError
from ..records import Record
from .convert import from_avro
from .files import SchemaVersion, schema_versions
from .reader import READ_ERRORS, reader_of
from .writer import WRITE_ERRORS, writer_of

_READ_ERRORS = (*READ_ERRORS, EOFError, TypeError, KeyError, OverflowError, MemoryError, RecordError)
"""With those of fastavro, and of an attribute's bytes that are not packed integers."""

SINGLE_OBJECT_MARKER = b"\xc3\x01"
CONFLUENT_MARKER = b"\x00"
_SINGLE_OBJECT_HEADER_BYTES = 10
_CONFLUENT_HEADER_BYTES = 5


class SchemaIds(Protocol):
    """A Schema Registry, as far as the codec uses it."""

    def id_of(self, version: SchemaVersion) -> int:
        """Id under which this schema is registered; registers it if needed."""
        ...

    def fingerprint_of(self, schema_id: int) -> bytes:
        """Fingerprint of the schema registered under ``schema_id``.

        Raises:
            UnknownSchemaError: the registry has no such id.
        """
        ...


class Codec:
    """Encodes with the latest schema of each record; decodes records of any committed version. Thread-safe.

    Args:
        registry: a Schema Registry, or ``None`` for single-object framing. Without one, Confluent-framed records
            cannot be read (:class:`UnknownSchemaError`).
    """

    def __init__(self, registry: SchemaIds | None = None) -> None:
        self._registry = registry
        self._by_fingerprint: dict[bytes, SchemaVersion] = {v.fingerprint: v for v in schema_versions()}
        self._latest: dict[type[Record], SchemaVersion] = {v.record: v for v in schema_versions()}
        self._headers: dict[type[Record], bytes] = {}

    def encode(self, record: Record) -> bytes:
        """Header and body of one record.

        Raises:
            RecordError: a field has a value its Avro type cannot hold.
        """
        header = self._header(self._latest[type(record)])
        try:
            return header + writer_of(type(record))(record)
        except WRITE_ERRORS as error:
            name = type(record).__name__
            raise RecordError(f"a {name} cannot be written as Avro: {type(error).__name__}: {error}") from error

    def decode(self, data: bytes | None, writer: str | None = None) -> Record:
        """The record in ``data``; its type follows from the schema it was written with.

        Args:
            writer: the version of Lightstream that wrote it, where that is known.

        Raises:
            DecodeError: ``data`` is empty, not framed, truncated, or not what its schema says.
            UnknownSchemaError: framed correctly by a schema we do not have.
            NewerWriterError: so too, but another version of Lightstream wrote it, which has that schema.
        """
        if not data:
            raise DecodeError("an empty value is not a record")
        written_with, begin = self._unframed(data, writer)
        latest = self._latest[written_with.record]
        record: Record
        try:
            if written_with is latest:
                record, end = reader_of(latest.record)(data, begin)
            else:
                record, end = _read_older(data, begin, written_with)
        except _READ_ERRORS as error:
            name = written_with.record.__name__
            raise DecodeError(f"not a {name} v{written_with.version}: {type(error).__name__}: {error}") from error
        if end != len(data):
            rest = len(data) - end
            problem = f"{rest} bytes are left over after" if rest > 0 else f"{-rest} bytes are missing at the end of"
            raise DecodeError(f"{problem} a {written_with.record.__name__}")
        return record

    def knows(self, schema: str) -> bool:
        """Whether records of the schema with this fingerprint (as :attr:`UnknownSchemaError.schema`) can be read."""
        return bytes.fromhex(schema)[::-1] in self._by_fingerprint

    def _header(self, version: SchemaVersion) -> bytes:
        header = self._headers.get(version.record)
        if header is None:
            if self._registry is None:
                header = SINGLE_OBJECT_MARKER + version.fingerprint
            else:
                header = CONFLUENT_MARKER + self._registry.id_of(version).to_bytes(4, "big")
            self._headers[version.record] = header
        return header

    def _unframed(self, data: bytes, writer: str | None) -> tuple[SchemaVersion, int]:
        """The schema ``data`` was written with, and where the record begins."""
        if data[:2] == SINGLE_OBJECT_MARKER and len(data) >= _SINGLE_OBJECT_HEADER_BYTES:
            fingerprint = data[2:_SINGLE_OBJECT_HEADER_BYTES]
            begin = _SINGLE_OBJECT_HEADER_BYTES
        elif data[:1] == CONFLUENT_MARKER and len(data) >= _CONFLUENT_HEADER_BYTES:
            schema_id = int.from_bytes(data[1:_CONFLUENT_HEADER_BYTES], "big")
            if self._registry is None:
                raise UnknownSchemaError(f"{schema_id} (no LIGHTSTREAM_SCHEMA_REGISTRY_URL is set)")
            fingerprint = self._registry.fingerprint_of(schema_id)
            begin = _CONFLUENT_HEADER_BYTES
        else:
            raise DecodeError(f"neither single-object nor Confluent framing: starts with {data[:4].hex()}")
        version = self._by_fingerprint.get(fingerprint)
        if version is None:
            schema = fingerprint[::-1].hex()
            if writer is None or writer == installed_version():
                raise UnknownSchemaError(schema)
            raise NewerWriterError(schema, writer)
        return version, begin


def _read_older(data: bytes, begin: int, written_with: SchemaVersion) -> tuple[Record, int]:
    """A record that an older version wrote, and where it ends.

    Read by the writer's schema alone: between two, fastavro takes the first branch of a union that fits after a
    promotion, and an attribute's bytes for text.
    """
    stream = BytesIO(data)
    stream.seek(begin)
    values: Any = schemaless_reader(stream, written_with.parsed, None)
    return from_avro(written_with.record, values), stream.tell()
