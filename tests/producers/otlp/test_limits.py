"""Sizes, and a Kafka that is away: bounded, and told as OTLP says."""

from __future__ import annotations

import gzip
import resource
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import httpx
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub

from lightstream.broker import EmbeddedBroker
from lightstream.producers.otlp.decode import protobuf
from lightstream.producers.semconv import TRUNCATED
from lightstream.runtime.http.body import Unpacker
from lightstream.runtime.http.server import BodyTooLargeError
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import DecodeError
from lightstream.schemas.records import SpanRecord
from tests.producers.otlp.conftest import StartGateway
from tests.producers.otlp.requests import JSON, PROTOBUF, json_request, json_span, log_request, span, trace_request
from tests.producers.support import read_spans
from tests.support.waiting import eventually

MEBIBYTE = 1024 * 1024


def _export(address: str, request: Any, **options: Any) -> Any:
    with grpc.insecure_channel(address.removeprefix("http://")) as channel:
        stub: Any = TraceServiceStub(channel)  # type: ignore[no-untyped-call]  # the library leaves it untyped
        return stub.Export(request, timeout=300, wait_for_ready=True, **options)


def _refused(address: str, request: Any, **options: Any) -> Any:
    with pytest.raises(grpc.RpcError) as refused:
        _export(address, request, **options)
    return refused.value


def _is_taken(address: str, request: Any) -> bool:
    url = f"{address}/v1/traces"
    return httpx.post(url, content=request.SerializeToString(), headers=PROTOBUF, timeout=300).status_code == 200


@pytest.mark.parametrize("compressed", [False, True])
def test_a_request_over_the_limit_is_refused_for_good(
    start_gateway: StartGateway, spans_in_log: Callable[[], list[SpanRecord]], compressed: bool
) -> None:
    addresses = start_gateway(gateway_request_bytes_max=100_000)
    large, small = trace_request(span(1, name="x" * 100_000)), trace_request(span(2, name="x" * 90_000))
    pack = gzip.compress if compressed else bytes
    headers = PROTOBUF | ({"content-encoding": "gzip"} if compressed else {})
    for request, status in ((large, 413), (small, 200)):
        body = pack(request.SerializeToString())
        answer = httpx.post(f"{addresses.http}/v1/traces", content=body, headers=headers, timeout=300)
        assert answer.status_code == status
        assert "retry-after" not in answer.headers
    compression = grpc.Compression.Gzip if compressed else grpc.Compression.NoCompression
    refused = _refused(addresses.grpc, large, compression=compression)
    assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert not {"google.rpc.retryinfo-bin", "grpc-status-details-bin"} & {
        k for k, _ in refused.trailing_metadata() or ()
    }
    _export(addresses.grpc, small, compression=compression)
    assert {record.span_id for record in spans_in_log()} == {span(2).span_id.hex()}


def test_a_gzip_bomb_takes_bounded_memory(start_gateway: StartGateway) -> None:
    addresses = start_gateway(gateway_request_bytes_max=MEBIBYTE)
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(packer.compress(bytes(16 * MEBIBYTE)) for _ in range(64)) + packer.flush()
    assert len(bomb) < 2 * MEBIBYTE, "a thousandth of what it unpacks to"
    before = _resident_bytes_max()
    answer = httpx.post(
        f"{addresses.http}/v1/traces", content=bomb, headers=PROTOBUF | {"content-encoding": "gzip"}, timeout=300
    )
    assert answer.status_code == 413
    assert _resident_bytes_max() - before < 200 * MEBIBYTE


def _resident_bytes_max() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_no_piece_is_unpacked_beyond_the_limit() -> None:
    unpacker = Unpacker("gzip", 1000)
    with pytest.raises(BodyTooLargeError):
        unpacker.feed(gzip.compress(bytes(10 * MEBIBYTE)))
    assert unpacker.size_bytes == 1001


def test_a_span_over_the_record_limit_is_kept_without_its_biggest_values(
    start_gateway: StartGateway, settings: Settings
) -> None:
    addresses = start_gateway(record_bytes_max=MEBIBYTE)
    big = span(1)
    big.attributes.add(key="big").value.string_value = "x" * (2 * MEBIBYTE)
    big.attributes.add(key="small").value.string_value = "y"
    _export(addresses.grpc, trace_request(big, span(2)))
    first, second = sorted(read_spans(settings), key=lambda record: record.span_id)
    assert (first.attributes["small"], len(first.attributes["big"])) == ("y", 1024)
    assert first.attributes[TRUNCATED][0].startswith("attributes.big")
    assert second.name == "span 2"


def test_two_thousand_attributes(start_gateway: StartGateway, settings: Settings) -> None:
    many = span(1)
    for number in range(2000):
        many.attributes.add(key=f"k{number}").value.int_value = number
    _export(start_gateway().grpc, trace_request(many))
    (record,) = read_spans(settings)
    assert record.attributes == {f"k{number}": number for number in range(2000)}


def test_a_logs_payload_over_grpc_is_refused_for_good(start_gateway: StartGateway) -> None:
    addresses = start_gateway()
    with grpc.insecure_channel(addresses.grpc.removeprefix("http://")) as channel:
        export = channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")
        for body in (log_request(time_unix_nano=1).SerializeToString(), b"\xff\xff"):
            with pytest.raises(grpc.RpcError) as refused:
                export(body, timeout=300)
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_while_kafka_is_away_clients_are_told_to_come_again(
    start_gateway: StartGateway, private_settings: Settings, private_broker: EmbeddedBroker
) -> None:
    addresses = start_gateway(private_settings, gateway_wait_s=0.5)
    body = trace_request(span(1))
    eventually(lambda: _is_taken(addresses.http, body), what="a broker that has just started takes a span")
    private_broker.kill()
    answer = httpx.post(f"{addresses.http}/v1/traces", content=body.SerializeToString(), headers=PROTOBUF, timeout=300)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    refused = _refused(addresses.grpc, body)
    assert refused.code() is grpc.StatusCode.UNAVAILABLE
    trailers = dict(refused.trailing_metadata() or ())
    assert RetryInfo.FromString(trailers["google.rpc.retryinfo-bin"]).retry_delay.seconds == 1
    details = Status.FromString(trailers["grpc-status-details-bin"]).details
    told = RetryInfo()
    assert details[0].Unpack(told)
    assert told.retry_delay.seconds == 1
    private_broker.start()
    eventually(lambda: _is_taken(addresses.http, trace_request(span(2))), what="the broker is back")
    assert {record.name for record in read_spans(private_settings)} == {"span 1", "span 2"}


@pytest.mark.parametrize("piece_bytes", [1, 20, 64 * 1024])
def test_empty_members_without_end_are_refused(piece_bytes: int) -> None:
    """Packed bytes count as well, and the parts of a body."""
    unpacker = Unpacker("gzip", MEBIBYTE)
    empty = gzip.compress(b"")
    endless = empty * (64 * 1024 // len(empty) + 1)

    def feed() -> None:
        for _ in range(100):
            for start in range(0, len(endless), piece_bytes):
                unpacker.feed(endless[start : start + piece_bytes])

    with pytest.raises((DecodeError, BodyTooLargeError)):
        feed()
    assert unpacker.size_bytes == 0


def test_packed_bytes_are_limited() -> None:
    """A body that unpacks to less than it has: stored blocks without content."""
    packer = zlib.compressobj(0, zlib.DEFLATED, 31)
    unpacker = Unpacker("gzip", 1000)
    unpacker.feed(packer.compress(b"x"))

    def feed() -> None:
        for _ in range(100_000):
            unpacker.feed(b"\0\0\0\xff\xff")  # one without content

    with pytest.raises(BodyTooLargeError, match="1,000 bytes"):
        feed()


def test_some_members_are_one_body() -> None:
    unpacker = Unpacker("gzip", 1000)
    unpacker.feed(gzip.compress(b"a") + gzip.compress(b"") + gzip.compress(b"b"))
    assert unpacker.finish() == b"ab"


def test_too_many_spans_are_refused_for_good_and_many_are_taken(
    start_gateway: StartGateway, spans_in_log: Callable[[], list[SpanRecord]]
) -> None:
    """As OTLP/JSON: 400,000 are too many in one request, 20,000 are not. Others are answered meanwhile."""
    url = f"{start_gateway().http}/v1/traces"
    headers = {"content-type": "application/json", "content-encoding": "gzip"}

    def post(count: int) -> int:
        body = gzip.compress(json_request(*(json_span(number) for number in range(1, count + 1))), 1)
        return httpx.post(url, content=body, headers=headers, timeout=300).status_code

    assert post(400_000) == 400
    with ThreadPoolExecutor(1) as beside:
        large = beside.submit(post, 20_000)
        answered = 0
        while not large.done():
            assert httpx.post(url, content=json_request(), headers=JSON, timeout=300).status_code == 200
            answered += 1
        assert large.result() == 200
    assert answered
    assert len({record.span_id for record in spans_in_log()}) == 20_000


def test_too_many_spans_of_protobuf_and_logs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lightstream.producers.otlp.decode._records.ITEMS_MAX", 3)
    four = trace_request(*(span(number) for number in range(1, 5)))
    with pytest.raises(DecodeError, match="the request has 4 items; at most 3"):
        protobuf.decode_traces(four.SerializeToString())
    logs = log_request()
    for _ in range(3):
        logs.resource_logs.append(logs.resource_logs[0])
    with pytest.raises(DecodeError, match="4 items"):
        protobuf.decode_logs(logs.SerializeToString())
    assert len(protobuf.decode_traces(trace_request(*(span(n) for n in range(1, 4))).SerializeToString()).records) == 3


@pytest.mark.parametrize("deep", [b"[" * 60_000_000, b'{"resourceSpans":[' + b"[" * 200_000])
def test_deep_json_is_refused(start_gateway: StartGateway, deep: bytes) -> None:
    """In a few hundred bytes, packed."""
    url = f"{start_gateway().http}/v1/traces"
    headers = JSON | {"content-encoding": "gzip"}
    answer = httpx.post(url, content=gzip.compress(deep, 1), headers=headers, timeout=300)
    assert answer.status_code == 400
    assert "recursion" not in answer.text
