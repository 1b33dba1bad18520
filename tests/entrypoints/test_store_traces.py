"""OTLP traces at the store's server: where Agent Lightning's clients send spans."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from lightstream.agl import InMemoryLightningStore, LightningStoreClient, LightningStoreServer
from lightstream.runtime.settings import Settings
from lightstream.schemas.types import AttemptedRollout

PROTOBUF = {"content-type": "application/x-protobuf"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LightningStoreServer]:
    """A store in memory, served with a token."""
    settings = Settings.load(data_dir=tmp_path, store_token="secret")
    running = LightningStoreServer(InMemoryLightningStore(), port=0, settings=settings)
    asyncio.run(running.start())
    yield running
    asyncio.run(running.stop())
    asyncio.run(running.store.close())


def begun(server: LightningStoreServer) -> AttemptedRollout:
    return asyncio.run(server.start_rollout({"task": 1}))


def resource_of(rollout: AttemptedRollout) -> dict[str, str]:
    return {
        "agentlightning.rollout_id": rollout.rollout_id,
        "agentlightning.attempt_id": rollout.attempt.attempt_id,
    }


def request_of(*spans: tuple[dict[str, str], str]) -> ExportTraceServiceRequest:
    """A request with one resource per span, each given as attributes and a name."""
    request = ExportTraceServiceRequest()
    for number, (attributes, name) in enumerate(spans, 1):
        of_resource = request.resource_spans.add()
        for key, value in attributes.items():
            of_resource.resource.attributes.append(KeyValue(key=key, value=AnyValue(string_value=value)))
        span = of_resource.scope_spans.add().spans.add(
            name=name, trace_id=b"t" * 16, span_id=bytes([number] * 8), start_time_unix_nano=10**18
        )
        ids = ArrayValue(values=[AnyValue(int_value=7), AnyValue(int_value=8)])
        span.attributes.append(KeyValue(key="lightstream.response_token_ids", value=AnyValue(array_value=ids)))
    return request


def sent(server: LightningStoreServer, request: ExportTraceServiceRequest) -> ExportTraceServiceResponse:
    headers = PROTOBUF | {"authorization": "Bearer secret"}
    said = httpx.post(server.otlp_traces_endpoint(), content=request.SerializeToString(), headers=headers)
    assert said.status_code == 200, said.content
    answer: ExportTraceServiceResponse = ExportTraceServiceResponse.FromString(said.content)
    return answer


def test_an_exporters_spans_are_the_attempts(server: LightningStoreServer) -> None:
    rollout = begun(server)

    async def endpoint() -> str:
        client = LightningStoreClient(server.endpoint, token="secret")
        assert client.capabilities.get("otlp_traces") is True
        assert client.otlp_traces_endpoint() == server.otlp_traces_endpoint(), "known without asking"
        await client.start()
        assert client.capabilities.get("otlp_traces") is True
        await client.close()
        return client.otlp_traces_endpoint()

    url = asyncio.run(endpoint())
    assert url == server.otlp_traces_endpoint() == f"{server.endpoint}/v1/traces"
    exporter = OTLPSpanExporter(url, headers={"authorization": "Bearer secret"}, compression=Compression.Gzip)
    provider = TracerProvider(resource=Resource.create(resource_of(rollout)))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    for name in ("first", "second"):
        with tracer.start_as_current_span(name, attributes={"number": 3}):
            pass
    provider.shutdown()
    first, second = asyncio.run(server.query_spans(rollout.rollout_id, "latest"))
    assert (first.name, first.sequence_id, first.attributes["number"]) == ("first", 1, 3)
    assert (second.name, second.sequence_id) == ("second", 2)
    assert first.resource.attributes["agentlightning.rollout_id"] == rollout.rollout_id
    alive = asyncio.run(server.get_rollout_by_id(rollout.rollout_id))
    assert alive is not None
    assert alive.status == "running", "a span is a sign of life"


def test_good_spans_are_kept_and_the_others_told(server: LightningStoreServer) -> None:
    rollout = begun(server)
    own = resource_of(rollout)
    unknown = own | {"agentlightning.rollout_id": "nonexistent"}
    numbered = own | {"agentlightning.span_sequence_id": "40"}
    answer = sent(server, request_of((own, "a"), (unknown, "b"), ({}, "c"), (numbered, "d")))
    assert answer.partial_success.rejected_spans == 2
    assert "Rollout nonexistent not found" in answer.partial_success.error_message
    assert "names no rollout" in answer.partial_success.error_message
    kept = asyncio.run(server.query_spans(rollout.rollout_id))
    assert {span.name for span in kept} == {"a", "d"}
    assert {span.name: span.sequence_id for span in kept}["d"] == 40
    assert kept[0].attributes["lightstream.response_token_ids"] == [7, 8]


def test_a_request_that_comes_twice_is_one(server: LightningStoreServer) -> None:
    rollout = begun(server)
    request = request_of((resource_of(rollout), "a"))
    assert sent(server, request) == sent(server, request) == ExportTraceServiceResponse()
    assert asyncio.run(server.query_spans(rollout.rollout_id)).total == 1


def test_what_is_not_taken(server: LightningStoreServer) -> None:
    url, token = server.otlp_traces_endpoint(), {"authorization": "Bearer secret"}
    assert httpx.post(url, content=b"", headers=PROTOBUF).status_code == 401
    assert httpx.post(url, content=b"not OTLP", headers=PROTOBUF | token).status_code == 400
    assert httpx.post(url, content=b"x", headers=token | {"content-type": "text/plain"}).status_code == 415
    assert httpx.get(url, headers=token).status_code == 405
    assert httpx.post(url.replace("traces", "metrics"), headers=token).status_code == 501
