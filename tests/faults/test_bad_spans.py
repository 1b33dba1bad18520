"""Bad spans beside good ones, over HTTP and gRPC, to the gateway and the store's server: each is rejected by itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from lightstream.runtime.services import discover
from lightstream.runtime.settings import Settings
from lightstream.store_views.client import ViewClient
from tests.producers.otlp.requests import JSON, PROTOBUF, json_request, json_span, span
from tests.producers.otlp.test_decode import message
from tests.support.program import program
from tests.support.waiting import eventually

LONE = "\ud83d"
HUGE = 10**400
TIMEOUT_S = 120.0


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    folder: Path = tmp_path_factory.mktemp("servers")
    settings = Settings.load(
        data_dir=folder, kafka_bootstrap_servers=None, gateway_port=0, gateway_grpc_port=0, gateway_wait_s=60.0
    )
    with program(settings, "up", "--no-proxy") as up:
        up.wait_for("worker", "view", "gateway", "gateway-grpc")
        with program(settings, "store") as store:
            store.wait_for("store")
            yield settings


def _attribute(value: dict[str, Any], name: str = "a") -> dict[str, Any]:
    return {"attributes": [{"key": name, "value": value}]}


def _nested(depth: int) -> bytes:
    """The JSON of a map in a map in …."""
    return b'{"kvlistValue":{"values":[{"key":"k","value":' * depth + b'{"intValue":"1"}' + b"}]}}" * depth


BAD: dict[str, dict[str, Any]] = {
    "a double too large": _attribute({"doubleValue": HUGE}),
    "a double too large by far": _attribute({"doubleValue": 10**4000}),
    "a double too large in a list": _attribute({"arrayValue": {"values": [{"doubleValue": HUGE}]}}),
    "a time too large": {"startTimeUnixNano": HUGE},
    "a time of an event too large": {"events": [{"timeUnixNano": HUGE}]},
    "a time of an event after 2262": {"events": [{"timeUnixNano": 2**64 - 1}]},
    "a time too small": {"startTimeUnixNano": -HUGE},
    "no time": {"startTimeUnixNano": "soon"},
    "flags too large": {"flags": HUGE},
    "no attributes": {"attributes": {"a": 1}},
    "no base64": _attribute({"bytesValue": "%"}),
    "no id, and a lone surrogate": {"traceId": LONE, "name": LONE},
}
GOOD: dict[str, dict[str, Any]] = {
    "a lone surrogate as rollout": _attribute({"stringValue": f"r{LONE}"}, "lightstream.rollout_id"),
    "a lone surrogate as name": {"name": LONE, "traceState": LONE},
    "a lone surrogate as key": _attribute({"stringValue": "x"}, LONE),
}


def _spans_of(local: Settings, trace_id: str) -> set[str]:
    client = ViewClient(local)
    try:
        rows = client.query(f"SELECT span_id FROM spans WHERE trace_id = '{trace_id}'").rows  # noqa: S608 - hex
    finally:
        client.close()
    return {str(span_id) for (span_id,) in rows}


def _trace_of(number: int) -> str:
    return number.to_bytes(16, "big").hex()


def _post(local: Settings, body: bytes, headers: dict[str, str] = JSON, service: str = "gateway") -> httpx.Response:
    return httpx.post(f"{discover(local, service).address}/v1/traces", content=body, headers=headers, timeout=TIMEOUT_S)


@pytest.mark.parametrize("what", [*BAD, *GOOD])
def test_a_bad_span_is_rejected_by_itself(local: Settings, what: str) -> None:
    trace = _trace_of(1 + [*BAD, *GOOD].index(what))
    bad = json_span(2, traceId=trace) | (BAD | GOOD)[what]
    answer = _post(local, json_request(json_span(1, traceId=trace), bad, json_span(3, traceId=trace)))
    assert answer.status_code == 200
    expected = {"rejectedSpans": "1"} if what in BAD else {}
    said = answer.json().get("partialSuccess", {})
    said.pop("errorMessage", None)
    assert said == expected
    taken = {number.to_bytes(8, "big").hex() for number in ((1, 3) if what in BAD else (1, 2, 3))}
    eventually(lambda: _spans_of(local, trace) == taken, what="the good ones are in the view")


@pytest.mark.parametrize(("depth", "is_taken"), [(50, True), (100, True), (101, False), (300, False), (20_000, False)])
def test_a_nested_value_costs_at_most_its_span(local: Settings, depth: int, is_taken: bool) -> None:
    trace = _trace_of(100 + depth)
    body = json_request(*(json_span(n, traceId=trace, **_attribute({"x": "@"} if n == 2 else {})) for n in (1, 2, 3)))
    answer = _post(local, body.replace(b'{"x": "@"}', _nested(depth)))
    assert answer.status_code == 200
    assert answer.json().get("partialSuccess", {}).get("rejectedSpans") == (None if is_taken else "1")
    taken = {number.to_bytes(8, "big").hex() for number in ((1, 2, 3) if is_taken else (1, 3))}
    eventually(lambda: _spans_of(local, trace) == taken, what="the good ones are in the view")


def _protobuf(depth: int) -> bytes:
    value = b"\x18\x01"  # int_value: 1
    for _ in range(depth):
        value = message(5, message(1, value))  # array_value: values
    attribute = message(9, message(1, b"deep") + message(2, value))
    spans = [span(number).SerializeToString() + (attribute if number == 2 else b"") for number in (1, 2, 3)]
    return message(1, message(2, b"".join(message(2, encoded) for encoded in spans)))


@pytest.mark.parametrize(("depth", "rejected"), [(50, 0), (300, 1), (20_000, 1)])
def test_in_protobuf_too(local: Settings, depth: int, rejected: int) -> None:
    answer = _post(local, _protobuf(depth), PROTOBUF)
    assert answer.status_code == 200
    assert ExportTraceServiceResponse.FromString(answer.content).partial_success.rejected_spans == rejected
    with grpc.insecure_channel(discover(local, "gateway-grpc").address.removeprefix("http://")) as channel:
        export = channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")
        answered = export(_protobuf(depth), timeout=TIMEOUT_S)
    assert ExportTraceServiceResponse.FromString(answered).partial_success.rejected_spans == rejected


def test_a_bad_resource_costs_its_own_spans(local: Settings) -> None:
    trace = _trace_of(50)
    good = json.loads(json_request(json_span(1, traceId=trace)))["resourceSpans"]
    bad = json.loads(json_request(json_span(2, traceId=trace), **_attribute({"doubleValue": HUGE})))["resourceSpans"]
    answer = _post(local, json.dumps({"resourceSpans": [*bad, *good]}).encode())
    assert (answer.status_code, answer.json()["partialSuccess"]["rejectedSpans"]) == (200, "1")
    eventually(lambda: _spans_of(local, trace) == {(1).to_bytes(8, "big").hex()})


def test_all_go_on_and_the_dead_letters_say_what_was_wrong(local: Settings) -> None:
    client = ViewClient(local)
    query = "SELECT count(*) FROM dead_letters WHERE reported_by = 'gateway' AND detail LIKE '%doubleValue%'"
    eventually(lambda: client.query(query).rows[0][0] >= 3)
    client.close()
    for name in ("gateway", "worker", "view"):
        assert "Traceback" not in (local.data_dir / "logs" / f"{name}.log").read_text()


@pytest.mark.parametrize("what", [*BAD, *GOOD])
def test_the_stores_server_too(local: Settings, what: str) -> None:
    store = discover(local, "store").address
    started = httpx.post(f"{store}/v1/agl/rollouts", json={"input": {}}, timeout=TIMEOUT_S).json()
    owner = {"rollout_id": started["rollout_id"], "attempt_id": started["attempt"]["attempt_id"]}
    resource = {
        "attributes": [{"key": f"lightstream.{name}", "value": {"stringValue": value}} for name, value in owner.items()]
    }
    trace = _trace_of(1000 + [*BAD, *GOOD].index(what))
    bad = json_span(2, traceId=trace) | (BAD | GOOD)[what]
    answer = _post(local, json_request(json_span(1, traceId=trace), bad, **resource), service="store")
    assert answer.status_code == 200
    taken = (1).to_bytes(8, "big").hex()
    eventually(lambda: taken in _spans_of(local, trace), what="the good one is in the view")
