"""The committed Avro files: ``avro/<topic>/<Record>.v<N>.avsc``."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fastavro import parse_schema
from fastavro.schema import fingerprint, to_parsing_canonical_form

from ..records import Record
from ..topics import TOPICS, Topic

AVRO_DIR = Path(__file__).parent.parent / "avro"

RELEASED = AVRO_DIR / "released.toml"
"""The list of all schemas that were released: they stay as they are."""


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """One version of one record's schema.

    Attributes:
        topic, record, version: which; versions count from 1.
        schema: the schema as JSON; ``parsed`` is what fastavro wants.
        fingerprint: CRC-64-AVRO of the parsing canonical form, 8 bytes, little-endian (Avro 1.12, single object).
    """

    topic: Topic
    record: type[Record]
    version: int
    schema: dict[str, Any]
    parsed: Any
    fingerprint: bytes

    @property
    def name(self) -> str:
        """Record and version, as the list of released schemas and the files have it: ``SpanRecord.v1``."""
        return f"{self.record.__name__}.v{self.version}"


def released_schemas() -> Mapping[str, str]:
    """Name -> fingerprint (16 hex digits) of every released schema."""
    releases = tomllib.loads(RELEASED.read_text(encoding="utf-8"))
    return {name: fingerprint for release in releases.values() for name, fingerprint in release.items()}


def canonical_form(schema: dict[str, Any]) -> str:
    """Avro's parsing canonical form, from which the fingerprint is taken."""
    return to_parsing_canonical_form(parse_schema(schema, _write_hint=False))


def schema_fingerprint(schema: dict[str, Any]) -> bytes:
    """CRC-64-AVRO of the canonical form, 8 bytes, little-endian as the single-object header has it."""
    return bytes.fromhex(fingerprint(canonical_form(schema), "CRC-64-AVRO"))


@cache
def schema_versions() -> tuple[SchemaVersion, ...]:
    """Every committed version of every record, oldest first within a record."""
    found: list[SchemaVersion] = []
    for topic in TOPICS:
        for record in topic.records:
            paths = (AVRO_DIR / topic.name).glob(f"{record.__name__}.v*.avsc")
            for path in sorted(paths, key=_version_of):
                schema = json.loads(path.read_text(encoding="utf-8"))
                found.append(
                    SchemaVersion(
                        topic=topic,
                        record=record,
                        version=_version_of(path),
                        schema=schema,
                        parsed=parse_schema(schema),
                        fingerprint=schema_fingerprint(schema),
                    )
                )
    return tuple(found)


def _version_of(path: Path) -> int:
    return int(path.name.split(".v")[1].split(".")[0])
