"""What decoding makes of OTLP messages: both encodings say the same, and nothing is lost."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from lightstream.producers.otlp.decode import json as from_json
from lightstream.producers.otlp.decode import protobuf
from lightstream.schemas.codec import Codec
from lightstream.schemas.records import SpanRecord, SpanStatus
from tests.producers.otlp.requests import TRACE_ID, json_request, json_span, span, trace_request

INT64 = st.integers(-(2**63), 2**63 - 1)
SCALARS = st.one_of(st.none(), st.booleans(), INT64, st.floats(), st.text(), st.binary(max_size=20))
LONG_INTEGERS = st.lists(st.one_of(INT64, st.integers(0, 200_000)), min_size=10, max_size=60)
LONG_DOUBLES = st.lists(st.floats(), min_size=10, max_size=40)
MIXED = st.lists(SCALARS, min_size=10, max_size=30)
VALUES = st.recursive(
    st.one_of(SCALARS, LONG_INTEGERS, LONG_DOUBLES, MIXED),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=4)),
    max_leaves=8,
)
ATTRIBUTES = st.dictionaries(st.text(max_size=8), VALUES, max_size=6)
codec = Codec()


def any_value(value: Any) -> AnyValue:
    message = AnyValue()
    if isinstance(value, bool):
        message.bool_value = value
    elif isinstance(value, int):
        message.int_value = value
    elif isinstance(value, float):
        message.double_value = value
    elif isinstance(value, str):
        message.string_value = value
    elif isinstance(value, bytes):
        message.bytes_value = value
    elif isinstance(value, list):
        message.array_value.values.extend(map(any_value, value))
        message.array_value.SetInParent()
    elif isinstance(value, dict):
        message.kvlist_value.values.extend(key_values(value))
        message.kvlist_value.SetInParent()
    return message


def key_values(values: dict[str, Any]) -> list[KeyValue]:
    return [KeyValue(key=key, value=any_value(value)) for key, value in values.items()]


def same(one: Any, other: Any) -> bool:
    """Equal, with NaN equal to itself and 1 different from 1.0 and True."""
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    return type(one) is type(other) and one == other


def through_the_log(record: SpanRecord) -> SpanRecord:
    read = codec.decode(codec.encode(record))
    assert isinstance(read, SpanRecord)
    return read


@given(attributes=ATTRIBUTES, event=ATTRIBUTES, link=ATTRIBUTES, resource=ATTRIBUTES)
def test_all_values_come_through(
    attributes: dict[str, Any], event: dict[str, Any], link: dict[str, Any], resource: dict[str, Any]
) -> None:
    sent = span(1, attributes=key_values(attributes), parent_span_id=b"parent-1")
    sent.events.add(name="e", time_unix_nano=3, attributes=key_values(event), dropped_attributes_count=4)
    sent.links.add(trace_id=TRACE_ID, span_id=b"12345678", attributes=key_values(link), trace_state="a=b", flags=1)
    request = trace_request(sent)
    request.resource_spans[0].resource.attributes.extend(key_values(resource))
    (record,) = protobuf.decode_traces(request.SerializeToString()).records
    record = through_the_log(record)
    assert same(record.attributes, attributes)
    assert same(record.events[0].attributes, event)
    assert same(record.links[0].attributes, link)
    assert same(record.resource_attributes, resource)


@given(attributes=ATTRIBUTES)
def test_both_encodings_say_the_same(attributes: dict[str, Any]) -> None:
    request = trace_request(span(1, attributes=key_values(attributes), kind=Span.SPAN_KIND_SERVER, flags=257))
    request.resource_spans[0].schema_url = "https://example.org/a"
    request.resource_spans[0].scope_spans[0].scope.name = "scope"
    as_json = json_format.MessageToDict(request, use_integers_for_enums=True)
    (sent,) = as_json["resourceSpans"][0]["scopeSpans"][0]["spans"]
    sent |= {"traceId": TRACE_ID.hex(), "spanId": (1).to_bytes(8, "big").hex()}  # OTLP writes ids in hex
    (one,) = protobuf.decode_traces(request.SerializeToString()).records
    (other,) = from_json.decode_traces(json.dumps(as_json).encode()).records
    assert same(through_the_log(one).__dict__, through_the_log(other).__dict__)


@pytest.mark.parametrize("kind", ["integers", "doubles"])
@given(
    arrays=st.lists(st.lists(st.floats(-9, 9), min_size=16, max_size=40), min_size=1, max_size=5), odd=st.integers(0, 4)
)
def test_an_odd_array_spoils_none_beside_it(kind: str, arrays: list[list[float]], odd: int) -> None:
    """One array holds something else beyond its first number; the others are still read together or by themselves."""
    values: list[list[Any]] = [[int(item) if kind == "integers" else item for item in items] for items in arrays]
    if odd < len(values):
        values[odd].append("text")
    attributes: dict[str, Any] = {f"a{number}": items for number, items in enumerate(values)}
    request = trace_request(span(1, attributes=key_values(attributes)))
    (record,) = protobuf.decode_traces(request.SerializeToString()).records
    assert same(through_the_log(record).attributes, attributes)


def test_a_malformed_array_costs_its_span() -> None:
    good = ArrayValue(values=[any_value(number) for number in range(200, 240)]).SerializeToString()
    request = trace_request(span(1, attributes=[KeyValue(key="a", value=AnyValue(array_value=ArrayValue()))]))
    body = request.SerializeToString()
    array = bytes([0x2A, 0])  # array_value of no bytes
    assert body.count(array) == 1
    assert len(protobuf.decode_traces(body).records) == 1
    numbers = any_value(list(range(200, 240)))
    bad, fine = (span(n, attributes=[KeyValue(key=name, value=numbers)]) for n, name in ((1, "a"), (2, "fine")))
    outer = trace_request(bad, fine)
    whole = outer.SerializeToString()
    assert good in whole
    decoded = protobuf.decode_traces(whole.replace(good, b"\n\x7f\x18" + good[3:], 1))
    (record,) = decoded.records
    assert record.attributes == {"fine": list(range(200, 240))}
    (rejection,) = decoded.rejections
    assert "malformed" in rejection.detail


@pytest.mark.parametrize(("depth", "is_read"), [(90, True), (150, False), (20_000, False)])
def test_spans_of_values_nested_too_deeply_are_rejected(depth: int, is_read: bool) -> None:
    value = b"\x18\x01"  # int_value: 1
    for _ in range(depth):
        value = message(5, message(1, value))  # array_value: values
    attribute = message(1, b"deep") + message(2, value)
    body = message(1, message(2, message(2, span(1).SerializeToString() + message(9, attribute))))
    decoded = protobuf.decode_traces(body)
    if is_read:
        (record,) = decoded.records
        assert repr(record.attributes["deep"]) == "[" * depth + "1" + "]" * depth
    else:
        (rejection,) = decoded.rejections
        assert "deep" in rejection.detail


def message(field: int, content: bytes) -> bytes:
    """A field of messages, on the wire."""
    size, encoded = len(content), bytearray([field << 3 | 2])
    while size > 0x7F:
        encoded.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*encoded, size]) + content


def test_json_details() -> None:
    pairs = [
        {"key": "int as text", "value": {"intValue": "9223372036854775807"}},
        {"key": "int as number", "value": {"intValue": 5}},
        {"key": "int as float", "value": {"intValue": 5.0}},
        {"key": "double as text", "value": {"doubleValue": "-Infinity"}},
        {"key": "double as int", "value": {"doubleValue": 2}},
        {"key": "bytes", "value": {"bytesValue": "_-8="}},
        {"key": "null", "value": None},
        {"key": "none", "value": {}},
        {"key": "unknown", "value": {"laterValue": 1}},
        {"key": "list", "value": {"arrayValue": {"values": [{"intValue": "1"}, {}, None]}}},
        {"key": "twice", "value": {"intValue": 1}},
        {"key": "twice", "value": {"intValue": 2}},
        {"value": {"stringValue": "no key"}},
    ]
    sent = json_span(attributes=pairs, status={"code": 2, "message": None}, parentSpanId="", flags=None, kind=99)
    (record,) = from_json.decode_traces(json_request(sent)).records
    assert record.attributes == {
        "int as text": 2**63 - 1,
        "int as number": 5,
        "int as float": 5,
        "double as text": -math.inf,
        "double as int": 2.0,
        "bytes": b"\xff\xef",
        "null": None,
        "none": None,
        "unknown": None,
        "list": [1, None, None],
        "twice": 2,
        "": "no key",
    }
    assert (record.status, record.parent_id, record.flags, record.kind) == (SpanStatus.ERROR, None, 0, "unknown")


def test_span_edge_cases_are_kept_for_their_readers() -> None:
    """Missing parents, children first, ends before starts, zero times, repeated ids, two roots."""
    spans = [
        span(2, parent_span_id=b"missing!"),
        span(3, start_time_unix_nano=20, end_time_unix_nano=10),
        span(4, start_time_unix_nano=0, end_time_unix_nano=0),
        span(5),
        span(5),
        span(5, name="other content"),
        span(6, parent_span_id=bytes(8), status=Status(code=Status.STATUS_CODE_OK)),
    ]
    decoded = protobuf.decode_traces(trace_request(*spans).SerializeToString())
    assert not decoded.rejections
    assert [record.span_id for record in decoded.records] == [sent.span_id.hex() for sent in spans]
    assert decoded.records[0].parent_id == b"missing!".hex()
    assert decoded.records[-1].parent_id is None


def test_counts_and_urls_are_kept() -> None:
    request = trace_request(
        span(
            1, dropped_attributes_count=1, dropped_events_count=2, dropped_links_count=3, trace_state="x=y", flags=0x301
        )
    )
    resource_spans = request.resource_spans[0]
    resource_spans.schema_url, resource_spans.scope_spans[0].schema_url = "https://r", "https://s"
    resource_spans.resource.dropped_attributes_count = 4
    resource_spans.scope_spans[0].scope.version = "7"
    (record,) = protobuf.decode_traces(request.SerializeToString()).records
    assert (record.dropped_attributes_count, record.dropped_events_count, record.dropped_links_count) == (1, 2, 3)
    assert (record.trace_state, record.flags) == ("x=y", 0x301)
    assert (record.resource_schema_url, record.scope_schema_url, record.scope_version) == (
        "https://r",
        "https://s",
        "7",
    )
    assert record.resource_attributes == {"otel.resource.dropped_attributes_count": 4}
