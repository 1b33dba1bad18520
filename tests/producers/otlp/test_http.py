"""OTLP/HTTP, by raw requests."""

from __future__ import annotations

import gzip
import json
import socket
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from pydantic import SecretStr

from lightstream.producers import semconv
from lightstream.schemas.records import SpanRecord
from tests.producers.otlp.conftest import Addresses, StartGateway
from tests.producers.otlp.requests import (
    JSON,
    PROTOBUF,
    TRACE_ID,
    json_request,
    json_span,
    log_request,
    span,
    span_id,
    trace_request,
)

SpansInLog = Callable[[], list[SpanRecord]]


def post(url: str, body: bytes, headers: dict[str, str]) -> httpx.Response:
    return httpx.post(url, content=body, headers=headers, timeout=300)


@pytest.fixture
def traces_url(addresses: Addresses) -> str:
    return f"{addresses.http}/v1/traces"


@pytest.mark.parametrize("media_type", ["application/x-protobuf", "application/x-protobuf; charset=utf-8"])
@pytest.mark.parametrize(
    ("encoding", "pack"), [("", bytes), ("identity", bytes), ("gzip", gzip.compress), ("deflate", zlib.compress)]
)
def test_protobuf_in_every_compression(
    traces_url: str, spans_in_log: SpansInLog, media_type: str, encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    body = pack(trace_request(span()).SerializeToString())
    answer = post(traces_url, body, {"content-type": media_type, "content-encoding": encoding})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-protobuf")
    assert not ExportTraceServiceResponse.FromString(answer.content).HasField("partial_success")
    (record,) = spans_in_log()
    assert (record.trace_id, record.span_id, record.name) == (TRACE_ID.hex(), span_id(1).hex(), "span 1")


@pytest.mark.parametrize("media_type", ["application/json", "application/json;charset=UTF-8", "Application/JSON"])
def test_json_on_the_same_port(traces_url: str, spans_in_log: SpansInLog, media_type: str) -> None:
    upper = json_span(traceId=TRACE_ID.hex().upper(), unknown={"field": [1]}, kind=3, startTimeUnixNano=10)
    answer = post(traces_url, gzip.compress(json_request(upper)), {"content-type": media_type} | GZIP)
    assert (answer.status_code, answer.headers["content-type"], answer.json()) == (200, "application/json", {})
    (record,) = spans_in_log()
    assert (record.trace_id, record.kind, record.start_unix_nano) == (TRACE_ID.hex(), "client", 10)


GZIP = {"content-encoding": "gzip"}


@pytest.mark.parametrize(("headers", "body"), [(PROTOBUF, b""), (JSON, b""), (JSON, b"{}")])
def test_an_empty_request_succeeds(addresses: Addresses, headers: dict[str, str], body: bytes) -> None:
    for signal in ("traces", "logs", "metrics"):
        assert post(f"{addresses.http}/v1/{signal}", body, headers).status_code == 200


def test_gzip_in_several_members(traces_url: str, spans_in_log: SpansInLog) -> None:
    body = trace_request(span()).SerializeToString()
    members = gzip.compress(body[:20]) + gzip.compress(body[20:])
    assert post(traces_url, members, PROTOBUF | GZIP).status_code == 200
    assert len(spans_in_log()) == 1


@pytest.mark.parametrize(
    ("headers", "body", "said"),
    [
        (PROTOBUF | GZIP, b"\x1f\x8bnot gzip at all", "corrupt"),
        (PROTOBUF | GZIP, gzip.compress(b"x" * 1000, mtime=0)[:-9], "incomplete"),
        (PROTOBUF, trace_request(span()).SerializeToString()[:-3], "not an OTLP"),
        (PROTOBUF, log_request(time_unix_nano=1).SerializeToString(), "another signal"),
        (JSON, b'{"resourceSpans": [', "not valid JSON"),
        (JSON, b"[]", "an object"),
        (JSON, b'{"resourceLogs": []}', "expected 'resourceSpans'"),
        (JSON, b'{"resource_spans": []}', "expected 'resourceSpans'"),
        (JSON, b"[" * 100_000, "not valid JSON"),
    ],
)
def test_what_is_no_otlp_is_refused_for_good(
    traces_url: str,
    spans_in_log: SpansInLog,
    dead_letters: Callable[[], list[Any]],
    headers: dict[str, str],
    body: bytes,
    said: str,
) -> None:
    answer = post(traces_url, body, headers)
    assert answer.status_code == 400
    assert answer.headers["content-type"] == headers["content-type"]
    if headers["content-type"] == JSON["content-type"]:
        message = answer.json()["message"]
        assert answer.json()["code"] == 3
    else:
        message = Status.FromString(answer.content).message
    assert said in message
    assert spans_in_log() == []
    (letter,) = dead_letters()
    assert (letter.origin_topic, letter.reported_by) == ("otlp/v1/traces", "gateway")
    assert body.startswith(letter.value[:100])


def test_a_logs_payload_of_spans_is_refused(addresses: Addresses) -> None:
    answer = post(f"{addresses.http}/v1/logs", trace_request(span()).SerializeToString(), PROTOBUF)
    assert answer.status_code == 400


@pytest.mark.parametrize("headers", [{}, {"content-type": "text/plain"}, PROTOBUF | {"content-encoding": "br"}])
def test_other_media_are_refused_for_good(traces_url: str, headers: dict[str, str]) -> None:
    assert post(traces_url, b"x", headers).status_code == 415
    assert httpx.get(traces_url, timeout=300).status_code == 405


BAD_SPANS = [
    span(2, trace_id=b""),
    span(3, trace_id=bytes(16)),
    span(4, span_id=bytes(8)),
    span(5, span_id=b"short"),
    span(6, start_time_unix_nano=2**64 - 1),
]


def test_good_spans_beside_bad_ones_are_kept(
    traces_url: str, spans_in_log: SpansInLog, dead_letters: Callable[[], list[Any]]
) -> None:
    body = trace_request(span(1), *BAD_SPANS, span(9)).SerializeToString()
    for _ in range(2):  # a repeated delivery makes no other letters
        answer = post(traces_url, body, PROTOBUF)
        assert answer.status_code == 200
        partial = ExportTraceServiceResponse.FromString(answer.content).partial_success
        assert partial.rejected_spans == len(BAD_SPANS)
        assert "trace id" in partial.error_message
    assert {record.name for record in spans_in_log()} == {"span 1", "span 9"}
    letters = dead_letters()
    assert len(letters) == 2 * len(BAD_SPANS)
    assert len({(letter.origin_topic, letter.origin_offset) for letter in letters}) == len(BAD_SPANS)
    assert {letter.value for letter in letters} == {bad.SerializeToString() for bad in BAD_SPANS}


def test_rejections_in_json(traces_url: str, spans_in_log: SpansInLog) -> None:
    answer = post(traces_url, json_request(json_span(1), json_span(2, traceId="xyz")), JSON)
    assert answer.status_code == 200
    assert answer.json()["partialSuccess"]["rejectedSpans"] == "1"
    assert len(spans_in_log()) == 1


def test_text_that_is_no_unicode_costs_only_itself(traces_url: str, spans_in_log: SpansInLog) -> None:
    broken = trace_request(span(1), span(2, name="na?me")).SerializeToString().replace(b"na?me", b"na\xffme")
    assert post(traces_url, broken, PROTOBUF).status_code == 200
    lone = json_request(json_span(3, name="SUR")).replace(b"SUR", b"\\ud83d")
    assert post(traces_url, lone, JSON).status_code == 200
    assert {record.name for record in spans_in_log()} == {"span 1", "na\ufffdme", "?"}


def test_the_rollout_by_url_header_baggage_and_resource(addresses: Addresses, spans_in_log: SpansInLog) -> None:
    plain = trace_request(span(1)).SerializeToString()
    path = "/rollout/r%2F1/attempt/a%201"
    ids = {"x-lightstream-rollout-id": "r2", "x-lightstream-attempt-id": "a2"}
    baggage = {"baggage": "other=1;p=2, lightstream.rollout_id=r%203 ,lightstream.attempt_id=a3"}
    agl = trace_request(span(1), agentlightning__rollout_id="r4", agentlightning__attempt_id="a4").SerializeToString()
    for url, headers, body in (
        (f"{path}/v1/traces", {}, plain),
        (f"{path}/v1/traces/", {}, agl),  # the resource's word goes first
        ("/v1/traces", ids, plain),
        ("/v1/traces", baggage, plain),
        ("/v1/traces", {}, plain),
    ):
        assert post(addresses.http + url, body, PROTOBUF | headers).status_code == 200
    found = {(record.rollout_id, record.attempt_id) for record in spans_in_log()}
    assert found == {("r/1", "a 1"), ("r4", "a4"), ("r2", "a2"), ("r 3", "a3"), (None, None)}


def test_authorization(start_gateway: StartGateway, spans_in_log: SpansInLog) -> None:
    secrets = {"gateway_token": SecretStr("s3 cret"), "gateway_basic_auth": SecretStr("me:pass word")}
    url = f"{start_gateway(**secrets).http}/v1/traces"
    body = trace_request(span()).SerializeToString()
    wrong = [{}, {"authorization": "Bearer other"}, {"authorization": "s3 cret"}, {"authorization": "Basic bWU6eA=="}]
    for headers in wrong:
        answer = post(url, body, PROTOBUF | headers)
        assert answer.status_code == 401
        assert "authorization" in Status.FromString(answer.content).message
        assert "retry-after" not in answer.headers
    assert spans_in_log() == []
    for value in ("Bearer s3 cret", "bearer%20s3%20cret", "Basic bWU6cGFzcyB3b3Jk", "Basic%20bWU6cGFzcyB3b3Jk"):
        assert post(url, body, PROTOBUF | {"authorization": value}).status_code == 200


def test_logs_become_spans_of_their_trace(addresses: Addresses, spans_in_log: SpansInLog) -> None:
    request = log_request(
        trace_id=TRACE_ID, span_id=span_id(7), time_unix_nano=5, severity_number=9, event_name="gen_ai.choice"
    )
    logs = request.resource_logs[0].scope_logs[0].log_records
    logs.append(logs[0])  # two that are alike are two
    logs.add(time_unix_nano=6).body.string_value = "belongs nowhere"
    for _ in range(2):
        answer = post(f"{addresses.http}/v1/logs", request.SerializeToString(), PROTOBUF)
        partial = ExportLogsServiceResponse.FromString(answer.content).partial_success
        assert partial.rejected_log_records == 1
    records = spans_in_log()
    assert len(records) == 4
    assert len({record.span_id for record in records}) == 2, "a repeated delivery is the same spans"
    record = records[0]
    assert (record.trace_id, record.parent_id, record.name) == (TRACE_ID.hex(), span_id(7).hex(), "gen_ai.choice")
    assert (record.start_unix_nano, record.end_unix_nano) == (5, 5)
    assert record.attributes[semconv.LOG_BODY] == "hello"
    assert record.attributes[semconv.LOG_SEVERITY_NUMBER] == 9


def test_metrics_are_let_in_and_let_go(addresses: Addresses, spans_in_log: SpansInLog) -> None:
    answer = post(f"{addresses.http}/v1/metrics", b"\x0a\x00", PROTOBUF)
    assert answer.status_code == 200
    assert not ExportMetricsServiceResponse.FromString(answer.content).HasField("partial_success")
    assert spans_in_log() == []


def test_chunked_bodies_on_one_connection(traces_url: str, spans_in_log: SpansInLog) -> None:
    def pieces(number: int) -> Iterator[bytes]:
        body = gzip.compress(trace_request(span(number)).SerializeToString())
        for begin in range(0, len(body), 7):
            yield body[begin : begin + 7]

    with httpx.Client(timeout=300) as client:
        for number in range(1, 6):
            answer = client.post(traces_url, content=pieces(number), headers=PROTOBUF | GZIP)
            assert answer.status_code == 200
            assert "content-length" not in answer.request.headers
    assert len(spans_in_log()) == 5


def test_many_connections_at_once(traces_url: str, spans_in_log: SpansInLog) -> None:
    def send(number: int) -> int:
        return post(traces_url, trace_request(span(number)).SerializeToString(), PROTOBUF).status_code

    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(send, range(1, 65))) == {200}
    assert len({record.span_id for record in spans_in_log()}) == 64


def test_a_client_that_goes_midway_hurts_nobody(addresses: Addresses, spans_in_log: SpansInLog) -> None:
    host, port = addresses.http.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as gone:
        gone.sendall(b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\n")
        gone.sendall(b"Content-Length: 1000\r\n\r\nhalf of it")
    answer = post(f"{addresses.http}/v1/traces", trace_request(span()).SerializeToString(), PROTOBUF)
    assert answer.status_code == 200
    assert len(spans_in_log()) == 1
    assert json.loads(httpx.get(f"{addresses.http}/healthz", timeout=300).content) == {"status": "ok"}


def test_spans_of_our_own_work_are_thrown_away(
    addresses: Addresses, spans_in_log: Callable[[], list[SpanRecord]]
) -> None:
    for request in (trace_request(span(1), lightstream__own="true"), trace_request(span(2), lightstream__other="true")):
        answer = httpx.post(
            f"{addresses.http}/v1/traces", content=request.SerializeToString(), headers=PROTOBUF, timeout=300
        )
        assert answer.status_code == 200
    assert [each.name for each in spans_in_log()] == ["span 2"]
