"""The exporter that the SDK finds by name, in agents that know nothing of us."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from lightstream.producers.otlp import LightstreamSpanExporter
from lightstream.runtime.settings import Settings
from lightstream.schemas.records import SpanRecord

SpansInLog = Callable[[], list[SpanRecord]]

AGENT = """
from opentelemetry import trace
tracer = trace.get_tracer("agent")
with tracer.start_as_current_span("call", attributes={"big": "x" * 1000}):
    tracer.start_span("within", attributes={"lightstream.rollout_id": "mine", "lightstream.attempt_id": "m1"}).end()
"""

NO_LIBRARIES = {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "*"}
"""Instrumenting every library of this environment takes seconds; that it may be done beside ours, one test shows."""


def run_agent(settings: Settings, folder: Path, code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    script = folder / "agent.py"
    script.write_text(code)
    command = [str(Path(sys.executable).with_name("opentelemetry-instrument")), sys.executable, str(script)]
    none = dict.fromkeys(("OTEL_METRICS_EXPORTER", "OTEL_LOGS_EXPORTER"), "none")
    environment = os.environ | settings.to_environment() | none | {"OTEL_TRACES_EXPORTER": "lightstream"} | variables
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)


def test_the_sdk_finds_it_by_name() -> None:
    (found,) = entry_points(group="opentelemetry_traces_exporter", name="lightstream")
    assert found.load() is LightstreamSpanExporter


def test_an_agent_without_a_line_of_ours(settings: Settings, tmp_path: Path, spans_in_log: SpansInLog) -> None:
    ids = "lightstream.rollout_id=r,lightstream.attempt_id=a,service.name=agent"
    done = run_agent(settings, tmp_path, AGENT, OTEL_RESOURCE_ATTRIBUTES=ids)
    assert done.returncode == 0, done.stderr
    found = {record.name: record for record in spans_in_log()}
    assert {name: (r.rollout_id, r.attempt_id) for name, r in found.items()} == {
        "call": ("r", "a"),
        "within": ("mine", "m1"),
    }
    assert found["within"].parent_id == found["call"].span_id
    assert found["call"].resource_attributes["service.name"] == "agent"


def test_an_agent_of_no_rollout_is_kept_under_its_trace(
    settings: Settings, tmp_path: Path, spans_in_log: SpansInLog
) -> None:
    code = "from opentelemetry import trace\ntrace.get_tracer('a').start_span('call').end()\nraise SystemExit(3)"
    assert run_agent(settings, tmp_path, code, **NO_LIBRARIES).returncode == 3
    (record,) = spans_in_log()
    assert (record.name, record.rollout_id) == ("call", None)


def test_an_agent_runs_on_where_kafka_is_not(settings: Settings, tmp_path: Path) -> None:
    nowhere = settings.model_copy(update={"kafka_bootstrap_servers": None, "data_dir": tmp_path / "none"})
    done = run_agent(nowhere, tmp_path, AGENT + "print('done')", **NO_LIBRARIES)
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert "spans lost so far" in done.stderr
    assert "no Kafka" in done.stderr


def test_a_batch_beyond_any_request_limit_is_sent_whole(
    settings: Settings, spans_in_log: SpansInLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """80 MiB in one batch, which the OTLP exporter would drop: each span is a record of its own."""
    for name, value in settings.to_environment().items():
        monkeypatch.setenv(name, value)
    exporter = LightstreamSpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=60_000))
    tracer = provider.get_tracer("t")
    for number in range(20):
        tracer.start_span(f"s{number}", attributes={"big": str(number % 10) * 4 * 1024 * 1024}).end()
    assert provider.force_flush(60_000)
    provider.shutdown()
    assert len({record.span_id for record in spans_in_log() if len(record.attributes["big"]) == 4 * 1024 * 1024}) == 20
