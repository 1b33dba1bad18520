"""Records survive both framings; anything else is a clear error and nothing worse."""

from __future__ import annotations

import contextlib
import json
import math
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import Any

import pytest
from fastavro import schemaless_writer
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from lightstream.schemas.codec import Codec, SchemaRegistry, codec_for
from lightstream.schemas.codec.convert import to_avro
from lightstream.schemas.codec.files import schema_fingerprint, schema_versions
from lightstream.schemas.errors import DecodeError, RecordError, ServiceUnavailableError, UnknownSchemaError
from lightstream.schemas.examples import EXAMPLES
from lightstream.schemas.records import LlmCall, Record, SpanEventRecord, SpanRecord, SpanStatus
from lightstream.schemas.settings import Settings

CODEC = Codec()

scalars = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text() | st.binary()
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=12) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=20
)


def _span(**fields: Any) -> SpanRecord:
    return SpanRecord(trace_id="0" * 32, span_id="1" * 16, name="n", **fields)


@pytest.mark.parametrize("record", EXAMPLES, ids=lambda r: type(r).__name__)
def test_every_record_survives(record: Record) -> None:
    assert CODEC.decode(CODEC.encode(record)) == record


def as_fastavro_writes(record: Record) -> bytes:
    latest = [version for version in schema_versions() if version.record is type(record)][-1]
    buffer = BytesIO()
    schemaless_writer(buffer, latest.parsed, to_avro(record))
    return buffer.getvalue()


@pytest.mark.parametrize("record", EXAMPLES, ids=lambda r: type(r).__name__)
def test_the_bytes_are_those_that_fastavro_writes(record: Record) -> None:
    assert CODEC.encode(record)[10:] == as_fastavro_writes(record)


@given(
    st.dictionaries(st.text(), values, max_size=6), st.integers(-(2**63), 2**63 - 1), st.text(), st.none() | st.binary()
)
def test_any_span_is_written_as_fastavro_writes_it(
    attributes: dict[str, Any], number: int, text: str, data: bytes | None
) -> None:
    event = SpanEventRecord(name=text, time_unix_nano=number, attributes=attributes)
    call = LlmCall(response_id=text, policy_version=number, prompt_token_ids=data)
    span = _span(attributes=attributes, start_unix_nano=number, status_message=text, events=[event] * 3, llm_call=call)
    assert CODEC.encode(span)[10:] == as_fastavro_writes(span)


def test_the_header_is_the_specifications() -> None:
    # Avro 1.12, "Single-object encoding": the CRC-64-AVRO of "null" is 63dd24e7cc258f8a, sent little-endian.
    assert schema_fingerprint("null").hex() == "8a8f25cce724dd63"  # type: ignore[arg-type]  # a primitive is a schema
    assert CODEC.encode(EXAMPLES[0])[:2] == b"\xc3\x01"


@given(st.dictionaries(st.text(), values, max_size=6))
def test_attributes_of_every_kind_survive(attributes: dict[str, Any]) -> None:
    decoded = CODEC.decode(CODEC.encode(_span(attributes=attributes)))
    assert isinstance(decoded, SpanRecord)
    assert decoded.attributes == attributes


def test_numbers_that_are_none_and_numbers_too_large_keep_their_meaning() -> None:
    decoded = CODEC.decode(CODEC.encode(_span(attributes={"nan": math.nan, "inf": -math.inf, "huge": 2**70})))
    assert isinstance(decoded, SpanRecord)
    assert math.isnan(decoded.attributes["nan"])
    assert decoded.attributes["inf"] == -math.inf
    assert decoded.attributes["huge"] == str(2**70)


def test_decoded_enums_are_enums_and_records_are_records() -> None:
    decoded = CODEC.decode(CODEC.encode(_span(status=SpanStatus.ERROR, llm_call=LlmCall(prompt_token_ids=b"1234"))))
    assert isinstance(decoded, SpanRecord)
    assert decoded.status is SpanStatus.ERROR
    assert decoded.llm_call == LlmCall(prompt_token_ids=b"1234")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_record_or_a_decode_error(data: bytes) -> None:
    with pytest.raises(DecodeError):
        CODEC.decode(data)


@hypothesis_settings(max_examples=300)
@given(st.sampled_from(EXAMPLES), st.data())
def test_a_damaged_record_is_a_record_or_a_decode_error(record: Record, data: st.DataObject) -> None:
    encoded = bytearray(CODEC.encode(record))
    position = data.draw(st.integers(2, len(encoded) - 1))
    encoded[position] = data.draw(st.integers(0, 255))
    with contextlib.suppress(DecodeError):
        assert isinstance(CODEC.decode(bytes(encoded)), Record)


@given(st.sampled_from(EXAMPLES), st.data())
def test_a_truncated_record_is_a_decode_error(record: Record, data: st.DataObject) -> None:
    encoded = CODEC.encode(record)
    with pytest.raises(DecodeError):
        CODEC.decode(encoded[: data.draw(st.integers(0, len(encoded) - 1))])


def test_an_unknown_schema_is_named() -> None:
    with pytest.raises(UnknownSchemaError, match="0807060504030201"):
        CODEC.decode(b"\xc3\x01" + bytes(range(1, 9)) + b"body")


def test_a_value_that_avro_cannot_hold_is_refused_before_anything_is_sent() -> None:
    wrong: list[dict[str, Any]] = [
        {"name": 7},
        {"name": "\ud800"},
        {"start_unix_nano": 2**63},
        {"start_unix_nano": "1"},
        {"status": "no such status"},
        {"llm_call": "x"},
        {"attributes": {1: 2}},
    ]
    for fields in wrong:
        with pytest.raises(RecordError, match="SpanRecord"):
            CODEC.encode(_span().model_copy(update=fields))


class _Registry(BaseHTTPRequestHandler):
    """A Schema Registry, as far as two calls of its REST interface go."""

    schemas: list[str] = []

    def do_POST(self) -> None:
        schema = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["schema"]
        if schema not in self.schemas:
            self.schemas.append(schema)
        self._answer(200, {"id": self.schemas.index(schema) + 1})

    def do_GET(self) -> None:
        number = int(self.path.rsplit("/", 1)[-1])
        if 0 < number <= len(self.schemas):
            self._answer(200, {"schema": self.schemas[number - 1]})
        else:
            self._answer(404, {"error_code": 40403})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name in the base class
        """Quiet."""


@pytest.fixture
def registry() -> Iterator[Settings]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Registry)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield Settings.load(schema_registry_url=f"http://127.0.0.1:{server.server_port}")
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("record", EXAMPLES, ids=lambda r: type(r).__name__)
def test_with_a_registry_records_are_confluent_framed_and_readers_take_both(registry: Settings, record: Record) -> None:
    codec = codec_for(registry)
    encoded = codec.encode(record)
    assert encoded[0] == 0
    assert codec.decode(encoded) == record
    assert Codec(SchemaRegistry(registry)).decode(encoded) == record
    assert codec.decode(CODEC.encode(record)) == record


def test_an_id_that_the_registry_lacks_is_an_unknown_schema(registry: Settings) -> None:
    with pytest.raises(UnknownSchemaError, match="99999"):
        codec_for(registry).decode(b"\x00" + (99999).to_bytes(4, "big") + b"body")


def test_without_a_registry_confluent_framing_says_what_is_missing() -> None:
    with pytest.raises(UnknownSchemaError, match="LIGHTSTREAM_SCHEMA_REGISTRY_URL"):
        CODEC.decode(b"\x00\x00\x00\x00\x01body")


def test_a_registry_that_is_away_is_a_clear_error() -> None:
    codec = codec_for(Settings.load(schema_registry_url="http://127.0.0.1:9"))
    with pytest.raises(ServiceUnavailableError, match="LIGHTSTREAM_SCHEMA_REGISTRY_URL"):
        codec.encode(EXAMPLES[0])


@pytest.mark.parametrize("record", EXAMPLES, ids=lambda r: type(r).__name__)
def test_a_decoded_record_is_as_good_as_a_new_one(record: Record) -> None:
    decoded = CODEC.decode(CODEC.encode(record))
    name = next(iter(type(record).model_fields))
    assert decoded.model_copy(update={name: getattr(record, name)}) == record
    assert decoded.model_dump() == record.model_dump()
    assert decoded.model_fields_set == set(type(record).model_fields)
