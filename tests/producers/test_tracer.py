"""The tracer: which span belongs to which attempt, and where else spans go."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from opentelemetry import propagate, trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from lightstream.producers import AttemptRef, OtelTracer, current_attempt, emit_reward
from lightstream.producers.exporter import KafkaSpanExporter
from lightstream.producers.tracer.otel import otlp_processor
from lightstream.runtime.kafka import create_topics
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import PublishError, SettingsError
from lightstream.schemas.records import SpanRecord
from tests.producers.support import read_spans

SpansInLog = Callable[[], list[SpanRecord]]


def test_leaving_the_context_means_durable(tracer: OtelTracer, spans_in_log: SpansInLog) -> None:
    with tracer.trace_context("named", rollout_id="r", attempt_id="r-a1") as otel:
        assert current_attempt.get() == AttemptRef("r", "r-a1")
        with otel.start_as_current_span("inside"):
            emit_reward(1.0)
    assert current_attempt.get() is None
    spans = {span.name: span for span in spans_in_log()}
    assert {span.rollout_id for span in spans.values()} == {"r"}
    assert spans.keys() == {"inside", "agentlightning.annotation"}, "the trace's name makes no span"
    assert spans["agentlightning.annotation"].parent_id == spans["inside"].span_id


class _Labelled(OtelTracer):
    """A user's own tracer, with state of its own."""

    def __init__(self, settings: Settings, label: str) -> None:
        super().__init__(settings)
        self.label = label


def test_a_copy_by_pickle_writes_as_its_original_does(settings: Settings, spans_in_log: SpansInLog) -> None:
    with contextlib.closing(_Labelled(settings, "mine")) as tracer:
        tracer.init_worker(3)
        copy = pickle.loads(pickle.dumps(tracer))  # noqa: S301  # our own
    assert (type(copy), copy.label, copy.worker_id) == (_Labelled, "mine", None)
    assert copy.exporter is not tracer.exporter
    with contextlib.closing(copy), copy.trace_context(rollout_id="r", attempt_id="r-a1") as otel:
        otel.start_span("inside").end()
    assert [span.name for span in spans_in_log()] == ["inside"]


def test_a_tracer_with_a_given_exporter_is_not_copied(exporter: KafkaSpanExporter) -> None:
    with (
        contextlib.closing(OtelTracer(exporter=exporter)) as tracer,
        pytest.raises(TypeError, match="a function that makes the tracer"),
    ):
        pickle.dumps(tracer)


def test_async_context_and_error_in_it(tracer: OtelTracer, spans_in_log: SpansInLog) -> None:
    async def main() -> None:
        async with tracer.trace_context(rollout_id="r", attempt_id="r-a1") as otel:
            with otel.start_as_current_span("whole"):
                raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        asyncio.run(main())
    (span,) = spans_in_log()
    assert (span.rollout_id, span.status) == ("r", "error")
    assert span.events[0].attributes["exception.message"] == "inside"


def test_a_span_stays_with_the_attempt_it_started_in(tracer: OtelTracer, spans_in_log: SpansInLog) -> None:
    """Ended after its attempt was left, or in a thread without a context; a child there follows its parent."""
    otel = tracer.get_tracer()
    with tracer.trace_context(rollout_id="r", attempt_id="r-a1"):
        late = otel.start_span("late")

    def elsewhere() -> None:
        with otel.start_as_current_span("child", context=trace.set_span_in_context(late)):
            pass
        late.end()

    with tracer.trace_context(rollout_id="other", attempt_id="other-a1"):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    otel.start_span("nobody's").end()
    tracer.exporter.flush()
    spans = {span.name: span for span in spans_in_log()}
    assert spans["late"].rollout_id == spans["child"].rollout_id == "r"
    assert spans["late"].trace_state == spans["child"].trace_state == "lightstream=r/r-a1"
    assert (spans["nobody's"].rollout_id, spans["nobody's"].attempt_id) == (None, None)


def test_two_tracers_in_one_process_keep_to_their_topics(settings: Settings, tracer: OtelTracer) -> None:
    other_settings = settings.model_copy(update={"topic_prefix": settings.topic_prefix + "b."})
    create_topics(other_settings)
    other = OtelTracer(other_settings)
    library = trace.get_tracer("library")
    with tracer.trace_context(rollout_id="one", attempt_id="a"):
        library.start_span("1").end()
        with other.trace_context(rollout_id="two", attempt_id="b"):
            library.start_span("2").end()
        library.start_span("3").end()
    other.close()
    assert sorted((s.name, s.rollout_id) for s in read_spans(settings)) == [("1", "one"), ("3", "one")]
    assert [(s.name, s.rollout_id) for s in read_spans(other_settings)] == [("2", "two")]


def test_more_attributes_than_the_sdk_keeps_by_default(tracer: OtelTracer, spans_in_log: SpansInLog) -> None:
    with tracer.trace_context(rollout_id="r", attempt_id="a") as otel:
        otel.start_span("n", attributes={f"gen_ai.prompt.{i}.content": "x" for i in range(1000)}).end()
    (span,) = spans_in_log()
    assert (len(span.attributes), span.dropped_attributes_count) == (1000, 0)


def test_one_id_without_the_other_is_refused(tracer: OtelTracer) -> None:
    with pytest.raises(SettingsError, match="give both"):
        tracer.trace_context(rollout_id="r")


def test_spans_that_cannot_be_delivered_are_an_error(settings: Settings) -> None:
    away = settings.model_copy(update={"kafka_bootstrap_servers": "127.0.0.1:1", "publish_timeout_s": 0.2})
    exporter = KafkaSpanExporter(away)
    tracer = OtelTracer(exporter=exporter)
    with (
        pytest.raises(PublishError, match="missing from the log: 1 "),
        tracer.trace_context(rollout_id="r", attempt_id="a"),
    ):
        emit_reward(1.0)
    exporter.shutdown(0.0)


def test_switched_off_sdk_is_an_error(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    with pytest.raises(SettingsError, match="OTEL_SDK_DISABLED"):
        OtelTracer(settings)


def test_unknown_otlp_protocol_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert otlp_processor() is None
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "carrier pigeon")
    with pytest.raises(SettingsError, match="carrier pigeon"):
        otlp_processor("http://127.0.0.1:1/v1/traces")


class Collector(BaseHTTPRequestHandler):
    """An OTLP collector, as far as one route goes."""

    received: list[ExportTraceServiceRequest] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.received.append(ExportTraceServiceRequest.FromString(body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name in the base class
        """Quiet."""


APPLICATION = """
from opentelemetry import propagate, trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
mine, provider = InMemorySpanExporter(), TracerProvider(resource=Resource({"service.name": "app"}))
provider.add_span_processor(SimpleSpanProcessor(mine))
trace.set_tracer_provider(provider)

from lightstream.producers import OtelTracer, emit_reward
OtelTracer()
tracer = OtelTracer()  # the second adds nothing twice
with tracer.trace_context(rollout_id="r", attempt_id="a"):
    emit_reward(0.5)
provider.force_flush()
assert len(mine.get_finished_spans()) == 1
"""


def test_an_applications_own_provider_stays_and_otlp_gets_a_copy(settings: Settings, spans_in_log: SpansInLog) -> None:
    server = HTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    Collector.received.clear()
    try:
        endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{server.server_port}"}
        environment = os.environ | settings.to_environment() | endpoint
        subprocess.run([sys.executable, "-c", APPLICATION], env=environment, timeout=120, check=True)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    (span,) = spans_in_log()
    assert (span.rollout_id, span.resource_attributes["service.name"]) == ("r", "app")
    copies = [
        item
        for request in Collector.received
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for item in scope.spans
    ]
    assert [copy.span_id.hex() for copy in copies] == [span.span_id]
    attributes = {item.key: item.value.string_value for item in copies[0].attributes}
    assert attributes["lightstream.rollout_id"] == "r", "a gateway behind the collector can tell whose it is"


IMPORTS = """
import sys
import lightstream.producers as producers
light = set(sys.modules)
for name in producers.__all__:
    getattr(producers, name)
heavy = {"faust", "duckdb", "torch", "litellm", "verl", "vllm", "transformers", "pyarrow", "grpc"}
print(sorted(heavy & {name.split(".")[0] for name in sys.modules}))
print(sorted({"opentelemetry", "confluent_kafka", "pydantic"} & {name.split(".")[0] for name in light}))
print(sorted(producers.__all__) == sorted(set(producers.__all__)))
"""


def test_importing_the_producers_is_light() -> None:
    """The names alone import nothing; using all of them, nothing heavy."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS], stdout=subprocess.PIPE, text=True, timeout=120, check=True, cwd=Path.home()
    )
    assert done.stdout.split("\n") == ["[]", "[]", "True", ""]


def test_the_trace_state_names_the_attempt(tracer: OtelTracer, spans_in_log: SpansInLog) -> None:
    """What is called inherits it, also after another attempt has gone on with the trace."""
    with (
        tracer.trace_context(rollout_id="r/1", attempt_id="a") as otel,
        otel.start_as_current_span("first"),
    ):
        headers: dict[str, str] = {}
        propagate.inject(headers)
        with (
            tracer.trace_context(rollout_id="r2", attempt_id="a2"),
            otel.start_as_current_span("second"),
        ):
            pass
    with (
        tracer.trace_context(rollout_id="r" * 300, attempt_id="a"),
        otel.start_as_current_span("long"),
        tracer.trace_context(),
        otel.start_as_current_span("none"),
    ):
        pass
    assert headers["tracestate"] == "lightstream=r%2F1/a"
    assert {span.name: span.trace_state for span in spans_in_log()} == {
        "first": "lightstream=r%2F1/a",
        "second": "lightstream=r2/a2",
        "long": "",
        "none": "",
    }
