"""The committed Avro files are what the models say, and every version can be read by and can read every other."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer

from lightstream.schemas.codec import Codec, SchemaVersion, schema_versions
from lightstream.schemas.codec.avro_schema import schema_of
from lightstream.schemas.codec.convert import from_avro
from lightstream.schemas.codec.files import AVRO_DIR, canonical_form
from lightstream.schemas.examples import EXAMPLES, example_of
from lightstream.schemas.records import Record, SpanRecord
from lightstream.schemas.topics import TOPICS
from tests.schemas.avro_values import avro_values

VERSIONS = schema_versions()
RECORDS = [record for topic in TOPICS for record in topic.records]


def _id(value: object) -> str:
    return f"{value.record.__name__}.v{value.version}" if isinstance(value, SchemaVersion) else str(value)


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.__name__)
def test_latest_file_is_what_the_model_says(record: type[Record]) -> None:
    latest = [version for version in VERSIONS if version.record is record][-1]
    assert latest.schema == schema_of(record), "run `make schemas`"


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.__name__)
def test_every_record_type_has_an_example_that_sets_what_matters(record: type[Record]) -> None:
    assert type(example_of(record)) is record
    assert len([e for e in EXAMPLES if type(e) is record]) == 1


@pytest.mark.parametrize("version", VERSIONS, ids=_id)
def test_the_committed_example_of_every_version_decodes(version: SchemaVersion) -> None:
    path = AVRO_DIR / version.topic.name / f"{version.record.__name__}.v{version.version}.example.bin"
    decoded = Codec().decode(path.read_bytes())
    assert type(decoded) is version.record
    latest = [other for other in VERSIONS if other.record is version.record][-1]
    if version is latest:
        assert decoded == example_of(version.record), "run `make schemas`"


PAIRS = [(a, b) for a in VERSIONS for b in VERSIONS if a.record is b.record]


@pytest.mark.parametrize(("writer", "reader"), PAIRS, ids=_id)
def test_every_version_reads_every_other(writer: SchemaVersion, reader: SchemaVersion) -> None:
    buffer = BytesIO()
    schemaless_writer(buffer, writer.parsed, avro_values(_without_bytes(example_of(writer.record))))
    values = schemaless_reader(BytesIO(buffer.getvalue()), writer.parsed, reader.parsed)
    assert isinstance(values, dict)
    assert values.keys() == {field["name"] for field in reader.schema["fields"]}


def _without_bytes(example: Record) -> Record:
    """Between two schemas fastavro, of all readers, takes an attribute's bytes for text, a branch that comes first."""
    if not isinstance(example, SpanRecord):
        return example
    attributes = {name: value for name, value in example.attributes.items() if name != "raw"}
    return example.model_copy(update={"attributes": attributes})


SPAN = [version for version in VERSIONS if version.record is SpanRecord][-1]
BEFORE = Path(__file__).with_name("before") / "SpanRecord.without_token_ends.avsc"
"""The first version as it was before ``response_tokens_text`` and ``response_token_ends`` came to it."""
ADDED = {"response_tokens_text": None, "response_token_ends": None, "sampling_json": None}


def _read(written: bytes, writer: Any, reader: Any = None) -> dict[str, Any]:
    values = schemaless_reader(BytesIO(written), writer, reader)
    assert isinstance(values, dict)
    return values


def _written(values: dict[str, Any], writer: Any) -> bytes:
    schemaless_writer(buffer := BytesIO(), writer, values)
    return buffer.getvalue()


def test_spans_from_before_the_ends_of_tokens_are_read() -> None:
    before = parse_schema(json.loads(BEFORE.read_text(encoding="utf-8")))
    span = example_of(SpanRecord)
    assert span.llm_call is not None
    assert span.llm_call.response_token_ends is not None
    old = _written(avro_values(span), before)  # fastavro leaves out what the schema has not
    without = span.model_copy(update={"llm_call": span.llm_call.model_copy(update=ADDED)})
    assert from_avro(SpanRecord, _read(old, before)) == without


def test_what_a_record_does_not_know_is_left_out() -> None:
    span = example_of(SpanRecord)
    written = _written(avro_values(span), SPAN.parsed)
    values = _read(written, SPAN.parsed) | {"of_a_later_version": 1}
    assert from_avro(SpanRecord, values) == span


def test_older_readers_read_spans_with_the_ends_of_tokens() -> None:
    before = parse_schema(json.loads(BEFORE.read_text(encoding="utf-8")))
    span = _without_bytes(example_of(SpanRecord))
    new = _written(avro_values(span), SPAN.parsed)
    by_an_older_reader = _read(new, SPAN.parsed, before)
    assert not by_an_older_reader["llm_call"].keys() & ADDED.keys()
    old = _written(avro_values(span), before)
    assert _written(by_an_older_reader, before) == _written(_read(old, before), before)


@pytest.mark.parametrize("version", VERSIONS, ids=_id)
def test_enums_have_a_default_symbol_and_nothing_uses_a_logical_type(version: SchemaVersion) -> None:
    def walk(node: object) -> None:
        if isinstance(node, dict):
            assert "logicalType" not in node
            if node.get("type") == "enum":
                assert node["default"] in node["symbols"]
            for child in node.values():
                walk(child)
        elif isinstance(node, list):
            for child in node:
                walk(child)

    walk(version.schema)


def test_fingerprints_tell_all_versions_apart_and_ignore_documentation() -> None:
    assert len({version.fingerprint for version in VERSIONS}) == len(VERSIONS)
    schema = json.loads(json.dumps(VERSIONS[0].schema))
    schema["doc"] = "another text"
    assert canonical_form(schema) == canonical_form(VERSIONS[0].schema)
