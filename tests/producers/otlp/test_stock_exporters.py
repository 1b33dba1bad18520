"""The OpenTelemetry project's own Python exporters, configured by their environment variables."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry import baggage, context, propagate, trace
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcLogExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpanExporter
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, SpanContext, TraceFlags, TraceState
from pydantic import SecretStr

from lightstream.producers import AttemptRef
from lightstream.producers.attribution import TRACE_STATE_KEY, trace_state_value
from lightstream.producers.exporter import record_of
from lightstream.schemas.packing import pack_float32, pack_int32
from lightstream.schemas.records import SpanRecord
from tests.producers.otlp.conftest import Addresses, StartGateway

SpansInLog = Callable[[], list[SpanRecord]]
PROTOCOLS = ("http", "grpc")
NO_LIMITS = SpanLimits(max_attributes=10_000, max_span_attributes=10_000)


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["", "gzip"])
def compression(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", str(request.param))
    return str(request.param)


def span_exporter(protocol: str, addresses: Addresses, monkeypatch: pytest.MonkeyPatch) -> SpanExporter:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "300")
    if protocol == "http":
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", addresses.http)
        return HttpSpanExporter()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", addresses.grpc)
    return GrpcSpanExporter()


@contextmanager
def tracing(resource: Resource | None = None) -> Generator[tuple[trace.Tracer, InMemorySpanExporter]]:
    memory = InMemorySpanExporter()
    provider = TracerProvider(span_limits=NO_LIMITS, shutdown_on_exit=False, resource=resource)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    yield provider.get_tracer("scope", "1.0", "https://example.org/schema", {"scope.kind": "test"}), memory
    provider.shutdown()


def test_everything_on_a_span_arrives(
    protocol: str,
    compression: str,
    addresses: Addresses,
    spans_in_log: SpansInLog,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exporter = span_exporter(protocol, addresses, monkeypatch)
    ids = list(range(100_000, 100_640))
    logprobs = [-number / 7 for number in range(128)]
    values: dict[str, Any] = {
        "text": "héllo",
        "yes": True,
        "lowest": -(2**63),
        "highest": 2**63 - 1,
        "nan": math.nan,
        "infinite": -math.inf,
        "": "empty key",
        "texts": ["a", "b"],
        "booleans": [True] * 40,
        "ids": ids,
        "wide": [2**40 + number for number in range(50)],
        "negative": [-number for number in range(50)],
        "logprobs": logprobs,
        "gen_ai.response.id": "resp-1",
        "lightstream.prompt_token_ids": ids,
        "lightstream.response_token_ids": ids[:128],
        "lightstream.response_logprobs": logprobs,
    }
    linked = SpanContext(7, 8, is_remote=True, trace_flags=TraceFlags(1), trace_state=TraceState([("a", "b")]))
    with tracing(Resource({"service.name": "s"}, "https://example.org/resource")) as (tracer, memory):
        with tracer.start_as_current_span("outer"):
            span = tracer.start_span(
                "inner", attributes=values, links=[Link(linked, {"l": 1})], kind=trace.SpanKind.CLIENT
            )
            span.add_event("event", {"e": [1.5]}, timestamp=17)
            span.set_status(trace.StatusCode.ERROR, "why")
            span.end()
        ended = memory.get_finished_spans()
    assert exporter.export(ended) is SpanExportResult.SUCCESS
    exporter.shutdown()
    found = {record.name: record for record in spans_in_log()}
    assert set(found) == {"outer", "inner"}
    inner, wanted = found["inner"], record_of(ended[0])
    assert inner.llm_call is not None
    assert inner.llm_call.prompt_token_ids == pack_int32(ids)
    assert inner.llm_call.response_logprobs == pack_float32(logprobs)
    assert inner.llm_call == wanted.llm_call
    scope_attributes = inner.attributes.pop("otel.scope.attributes")
    assert scope_attributes == {"scope.kind": "test"}
    nans = inner.attributes.pop("nan"), wanted.attributes.pop("nan")
    assert all(map(math.isnan, nans))
    flags = {"flags": 0, "links": []}  # the SDK's exporter leaves the sampled bit out
    assert inner.model_copy(update=flags) == wanted.model_copy(update=flags)
    (link,) = inner.links
    assert (link.trace_id, link.span_id, link.attributes) == (f"{7:032x}", f"{8:016x}", {"l": 1})
    assert inner.parent_id == found["outer"].span_id


def test_headers_from_the_environment(
    protocol: str, start_gateway: StartGateway, spans_in_log: SpansInLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = start_gateway(gateway_token=SecretStr("s3 cret"))
    with tracing() as (tracer, memory):
        tracer.start_span("one").end()
        spans = memory.get_finished_spans()
    refused = span_exporter(protocol, addresses, monkeypatch)
    assert refused.export(spans) is SpanExportResult.FAILURE, "and at once: it is not tried again"
    monkeypatch.setenv(
        "OTEL_EXPORTER_OTLP_HEADERS",
        "authorization=Bearer%20s3%20cret,x-lightstream-rollout-id=r,x-lightstream-attempt-id=a",
    )
    assert span_exporter(protocol, addresses, monkeypatch).export(spans) is SpanExportResult.SUCCESS
    (record,) = spans_in_log()
    assert (record.rollout_id, record.attempt_id) == ("r", "a")


def test_the_rollout_from_the_environment(
    protocol: str, addresses: Addresses, spans_in_log: SpansInLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "lightstream.rollout_id=r,lightstream.attempt_id=a")
    with tracing() as (tracer, memory):
        tracer.start_span("one").end()
        assert span_exporter(protocol, addresses, monkeypatch).export(memory.get_finished_spans()).name == "SUCCESS"
    (record,) = spans_in_log()
    assert (record.rollout_id, record.attempt_id) == ("r", "a")


def test_a_called_service_inherits_the_rollout_by_trace_state(
    addresses: Addresses, spans_in_log: SpansInLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stock propagators carry it, and the service knows nothing of rollouts."""
    entry = trace_state_value(AttemptRef("rollout/1, the first", "attempt=1"))
    caller = SpanContext(
        5, 6, is_remote=False, trace_flags=TraceFlags(1), trace_state=TraceState([(TRACE_STATE_KEY, entry)])
    )
    headers: dict[str, str] = {}
    propagate.inject(headers, trace.set_span_in_context(trace.NonRecordingSpan(caller)))
    with tracing() as (tracer, memory):
        with tracer.start_as_current_span("service", context=propagate.extract(headers)):
            tracer.start_span("within").end()
        span_exporter("http", addresses, monkeypatch).export(memory.get_finished_spans())
    found = spans_in_log()
    assert len(found) == 2
    assert {(record.rollout_id, record.attempt_id) for record in found} == {("rollout/1, the first", "attempt=1")}
    assert {record.trace_id for record in found} == {f"{5:032x}"}


def test_a_called_service_that_copies_baggage_inherits_the_rollout(
    addresses: Addresses, spans_in_log: SpansInLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As OpenTelemetry's baggage processor does: each entry becomes an attribute."""
    carrier = baggage.set_baggage("lightstream.attempt_id", "a", baggage.set_baggage("lightstream.rollout_id", "r"))
    headers: dict[str, str] = {}
    propagate.inject(headers, carrier)
    with tracing() as (tracer, memory):
        arrived = propagate.extract(headers, context.Context())
        attributes = {name: str(value) for name, value in baggage.get_all(arrived).items()}
        tracer.start_span("service", attributes=attributes).end()
        span_exporter("http", addresses, monkeypatch).export(memory.get_finished_spans())
    (record,) = spans_in_log()
    assert (record.rollout_id, record.attempt_id, record.attributes) == ("r", "a", record.attributes | {})
    assert "lightstream.rollout_id" not in record.attributes


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_log_records(
    protocol: str, addresses: Addresses, spans_in_log: SpansInLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    from opentelemetry._logs import LogRecord, SeverityNumber
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor

    endpoint = addresses.http if protocol == "http" else addresses.grpc
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "300")
    provider = LoggerProvider(shutdown_on_exit=False)
    exporter = HttpLogExporter() if protocol == "http" else GrpcLogExporter()
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    parent = SpanContext(5, 6, is_remote=False, trace_flags=TraceFlags(1))
    provider.get_logger("instrumentation").emit(
        LogRecord(
            timestamp=9,
            context=trace.set_span_in_context(trace.NonRecordingSpan(parent)),
            severity_number=SeverityNumber.INFO,
            body={"message": {"content": "hi", "ids": list(range(100))}},
            event_name="gen_ai.choice",
            attributes={"gen_ai.system": "openai"},
        )
    )
    provider.shutdown()
    (record,) = spans_in_log()
    assert (record.name, record.trace_id, record.parent_id) == ("gen_ai.choice", f"{5:032x}", f"{6:016x}")
    assert record.attributes["lightstream.log.body"] == {"message": {"content": "hi", "ids": list(range(100))}}
    assert record.scope_name == "instrumentation"
