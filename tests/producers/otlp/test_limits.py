"""Sizes, and a Kafka that is away: bounded, and told as OTLP says."""

from __future__ import annotations

import gzip
import resource
import zlib
from collections.abc import Callable
from typing import Any

import grpc
import httpx
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub

from lightstream.broker import EmbeddedBroker
from lightstream.producers.semconv import TRUNCATED
from lightstream.runtime.http.body import Unpacker
from lightstream.runtime.http.server import BodyTooLargeError
from lightstream.runtime.settings import Settings
from lightstream.schemas.records import SpanRecord
from tests.producers.otlp.conftest import StartGateway
from tests.producers.otlp.requests import PROTOBUF, log_request, span, trace_request
from tests.producers.support import read_spans
from tests.support.waiting import eventually

MEBIBYTE = 1024 * 1024


def _export(address: str, request: Any, **options: Any) -> Any:
    with grpc.insecure_channel(address.removeprefix("http://")) as channel:
        stub: Any = TraceServiceStub(channel)  # type: ignore[no-untyped-call]  # the library leaves it untyped
        return stub.Export(request, timeout=60, wait_for_ready=True, **options)


def _refused(address: str, request: Any, **options: Any) -> Any:
    with pytest.raises(grpc.RpcError) as refused:
        _export(address, request, **options)
    return refused.value


def _is_taken(address: str, request: Any) -> bool:
    url = f"{address}/v1/traces"
    return httpx.post(url, content=request.SerializeToString(), headers=PROTOBUF, timeout=60).status_code == 200


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
        answer = httpx.post(f"{addresses.http}/v1/traces", content=body, headers=headers, timeout=60)
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
        f"{addresses.http}/v1/traces", content=bomb, headers=PROTOBUF | {"content-encoding": "gzip"}, timeout=60
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
                export(body, timeout=60)
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_while_kafka_is_away_clients_are_told_to_come_again(
    start_gateway: StartGateway, private_settings: Settings, private_broker: EmbeddedBroker
) -> None:
    addresses = start_gateway(private_settings, gateway_wait_s=0.5)
    body = trace_request(span(1))
    eventually(lambda: _is_taken(addresses.http, body), what="a broker that has just started takes a span")
    private_broker.kill()
    answer = httpx.post(f"{addresses.http}/v1/traces", content=body.SerializeToString(), headers=PROTOBUF, timeout=60)
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
