"""Records survive both framings; anything else is a clear error and nothing worse."""

from __future__ import annotations

import contextlib
import json
import math
import threading
import types
from collections.abc import Generator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import Any, Union, cast, get_args, get_origin

import pytest
from fastavro import schemaless_reader, schemaless_writer
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from lightstream.runtime.schema_registry import SchemaRegistry, codec_for
from lightstream.runtime.settings import Settings
from lightstream.schemas.codec import Codec
from lightstream.schemas.codec.convert import constructed, from_avro
from lightstream.schemas.codec.files import schema_fingerprint, schema_versions
from lightstream.schemas.errors import DecodeError, RecordError, ServiceUnavailableError, UnknownSchemaError
from lightstream.schemas.examples import EXAMPLES
from lightstream.schemas.records import LlmCall, Record, RecordEnum, SpanEventRecord, SpanRecord, SpanStatus
from lightstream.schemas.topics import TOPICS
from tests.schemas.avro_values import avro_values
from tests.support.examples import examples

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
    schemaless_writer(buffer, latest.parsed, avro_values(record))
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


@pytest.mark.parametrize("size", [0, 63, 64, 8191, 8192, 1_000_000])
def test_sizes_around_every_short_cut_are_written_and_read_as_fastavro_does(size: int) -> None:
    text, data, number = "x" * size, b"y" * size, size
    call = LlmCall(response_id=text, prompt_token_ids=data, policy_version=number, choice_index=-number)
    span = _span(
        status_message=text, sequence_id=number, attributes={text: text, "b": data, "n": number}, llm_call=call
    )
    assert CODEC.encode(span)[10:] == as_fastavro_writes(span)
    assert CODEC.decode(CODEC.encode(span)) == span


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


@hypothesis_settings(max_examples=examples(300))
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


class _Quiet(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name in the base class
        """Nothing is logged."""


class _Registry(_Quiet):
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


@contextlib.contextmanager
def served_by(handler: type[BaseHTTPRequestHandler]) -> Generator[Settings]:
    """Settings with that server as their registry."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield Settings.load(schema_registry_url=f"http://127.0.0.1:{server.server_port}")
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def registry() -> Iterator[Settings]:
    with served_by(_Registry) as settings:
        yield settings


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


@pytest.mark.parametrize("schema", ['syntax = "proto3";', '"no.such.Type"', "7"])
def test_what_others_registered_is_an_unknown_schema(
    registry: Settings, monkeypatch: pytest.MonkeyPatch, schema: str
) -> None:
    monkeypatch.setattr(_Registry, "schemas", [schema])
    with pytest.raises(UnknownSchemaError):
        codec_for(registry).decode(b"\x00" + (1).to_bytes(4, "big") + b"body")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.0 200 OK\r\n\r\n<html>Sign in</html>",
        b"HTTP/1.0 200 OK\r\n\r\n{}",
        b"HTTP/1.0 200 OK\r\n\r\n[]",
        b'HTTP/1.0 200 OK\r\n\r\n{"id": null, "schema": null}',
        b"HTTP/1.0 200 OK\r\nContent-Length: 100\r\n\r\n{",  # cut off
        b"HTTP/1.0 502 Bad Gateway\r\nContent-Length: 100\r\n\r\n<html>",
        b"SSH-2.0-OpenSSH_9.6\r\n",
    ],
)
def test_what_is_no_registry_is_a_clear_error(answer: bytes) -> None:
    class Another(_Quiet):
        def handle_one_request(self) -> None:
            self.connection.recv(65536)
            self.wfile.write(answer)

    with served_by(Another) as settings:
        codec = codec_for(settings)
        with pytest.raises(ServiceUnavailableError, match="LIGHTSTREAM_SCHEMA_REGISTRY_URL"):
            codec.encode(EXAMPLES[0])
        with pytest.raises(ServiceUnavailableError, match="LIGHTSTREAM_SCHEMA_REGISTRY_URL"):
            codec.decode(b"\x00" + (1).to_bytes(4, "big") + b"body")


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


def of_type(annotation: Any) -> st.SearchStrategy[Any]:
    """Any value that a field of this type may have."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return st.one_of([st.none() if argument is type(None) else of_type(argument) for argument in arguments])
    if origin is list:
        return st.lists(of_type(arguments[0]), max_size=3)
    if origin is dict:
        return st.dictionaries(st.text(), values if arguments[1] is Any else of_type(arguments[1]), max_size=3)
    if issubclass(annotation, RecordEnum):
        return st.sampled_from(list(annotation))
    if issubclass(annotation, Record):
        return records(annotation)
    scalars: dict[Any, st.SearchStrategy[Any]] = {
        bool: st.booleans(),
        bytes: st.binary(),
        float: st.floats(allow_nan=False),
        int: st.integers(-(2**63), 2**63 - 1) | st.integers(-70, 70),
        str: st.text(),
    }
    return scalars[annotation]


def records(record: type[Record]) -> st.SearchStrategy[Record]:
    fields = {name: of_type(field.annotation) for name, field in record.model_fields.items()}
    return st.fixed_dictionaries(fields).map(lambda values: constructed(record, values))


ALL_RECORDS = [record for topic in TOPICS for record in topic.records]
any_record = st.sampled_from(ALL_RECORDS).flatmap(records)


@pytest.mark.parametrize("record", ALL_RECORDS, ids=lambda r: r.__name__)
@hypothesis_settings(max_examples=15)
@given(st.data())
def test_any_record_is_read_as_fastavro_reads_it(record: type[Record], data: st.DataObject) -> None:
    written = data.draw(records(record))
    encoded = CODEC.encode(written)
    latest = [version for version in schema_versions() if version.record is record][-1]
    by_fastavro = from_avro(record, cast("Any", schemaless_reader(BytesIO(encoded[10:]), latest.parsed, None)))
    decoded = CODEC.decode(encoded)
    assert decoded == by_fastavro
    assert decoded == written
    assert decoded.model_fields_set == by_fastavro.model_fields_set


@hypothesis_settings(max_examples=examples(100))
@given(any_record, st.data())
def test_what_is_no_record_is_a_decode_error(record: Record, data: st.DataObject) -> None:
    encoded = CODEC.encode(record)
    with pytest.raises(DecodeError):
        CODEC.decode(encoded[: data.draw(st.integers(0, len(encoded) - 1))])
    with pytest.raises(DecodeError, match="left over"):
        CODEC.decode(encoded + data.draw(st.binary(min_size=1)))
    with contextlib.suppress(DecodeError):
        CODEC.decode(encoded[:10] + data.draw(st.binary()))


def _as_avro(values: dict[str, Any]) -> bytes:
    """A span whose fields have these encodings; the others are absent, empty or 0."""
    fields = {"name": b"\x02n", **values}
    return CODEC.encode(_span())[:10] + b"".join(fields.get(name, b"\x00") for name in SpanRecord.model_fields)


def _long(value: int) -> bytes:
    schemaless_writer(buffer := BytesIO(), "long", value)
    return buffer.getvalue()


def test_blocks_that_say_their_size_are_read() -> None:
    # Avro 1.12, "Arrays": a negative count is followed by the size of the block in bytes. We never write it so.
    item = b"\x02a\x04\x0e"  # "a": the long 7
    attributes = _long(-1) + _long(len(item)) + item + b"\x02" + b"\x02b\x08" + b"\x02c" + b"\x00"
    decoded = CODEC.decode(_as_avro({"attributes": attributes}))
    assert isinstance(decoded, SpanRecord)
    assert decoded.attributes == {"a": 7, "b": "c"}


@pytest.mark.parametrize(
    ("field", "encoded"),
    [
        ("sequence_id", b"\xff" * 9 + b"\x02"),  # 65 bits
        ("sequence_id", b"\x80" * 1_000_000 + b"\x00"),
        ("name", b"\x01"),  # a length of -1
        ("name", _long(2**62)),
        ("name", b"\x02\xff"),  # no UTF-8
        ("kind", b"\x0c"),  # one symbol too many
        ("kind", b"\x01"),
        ("rollout_id", b"\x04"),  # no such branch
        ("events", _long(2**62)),
        ("attributes", b"\x02\x02a\x12"),  # no such branch
        ("attributes", b"\x02\x02a\x02\x02\x00"),  # a boolean of 2
        ("attributes", b"\x02\x02a\x0c\x06123\x00"),  # 3 bytes of packed int32
        ("attributes", b"\x02\x02a" + b"\x0e\x02" * 100_000),  # lists in lists
    ],
)
def test_bytes_against_the_specification_are_a_decode_error(field: str, encoded: bytes) -> None:
    assert isinstance(CODEC.decode(_as_avro({})), SpanRecord)
    with pytest.raises(DecodeError, match="not a SpanRecord"):
        CODEC.decode(_as_avro({field: encoded}))
