"""Kafka goes away under load and comes back: bounded waits, clear refusals, and of what was acknowledged all, once."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpanExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpanExporter
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from lightstream.broker import EmbeddedBroker
from lightstream.producers import AttemptRef
from lightstream.producers.exporter import KafkaSpanExporter
from lightstream.producers.llm_proxy import llm_proxy
from lightstream.producers.otlp.gateway import gateway
from lightstream.runtime.services import discover
from lightstream.runtime.settings import Settings
from lightstream.schemas.records import SpanRecord
from tests.faults.producers.model_server import Agents, counting_model_server
from tests.producers.support import Spans, read_spans
from tests.support.waiting import eventually

AGENTS = 6
AWAY_S = 30.0
LONG = pytest.mark.soak

SPANS_PER_S = 500
"""Of the exporter's agent: far from filling any buffer while Kafka is away."""


def _each_once(spans: list[SpanRecord]) -> set[str]:
    """Their response ids, of which none is there twice."""
    ids = [span.llm_call.response_id or "" for span in spans if span.llm_call is not None]
    assert len(ids) == len(set(ids)) == len({(span.trace_id, span.span_id) for span in spans})
    return set(ids)


@pytest.mark.parametrize(
    ("patience_s", "away_s"),
    [
        pytest.param(1.0, 0.0, id="until all were refused"),
        pytest.param(5.0, AWAY_S, marks=LONG, id="30 s, refused meanwhile"),
        pytest.param(60.0, AWAY_S, marks=LONG, id="30 s, waiting"),
    ],
)
def test_the_proxy_refuses_after_a_bounded_wait_and_loses_nothing_that_it_answered(
    private_broker: EmbeddedBroker, private_settings: Settings, patience_s: float, away_s: float
) -> None:
    with counting_model_server(private_settings) as upstream:
        changes = {"llm_upstream_url": upstream, "publish_timeout_s": patience_s}
        proxy = llm_proxy(private_settings.model_copy(update=changes))
        with Agents(proxy.start(), AGENTS) as agents:
            agents.wait_for(lambda: agents.answered, "all agents are answered")
            private_broker.kill()
            if patience_s < AWAY_S:
                agents.wait_for(lambda: agents.refused, "all agents are refused")
            threading.Event().wait(away_s)
            private_broker.start()
            agents.wait_for(lambda: agents.answered, "all agents are answered again")
        proxy.stop()
    recorded = _each_once(read_spans(private_settings))
    answered = [response_id for mine in agents.answered for response_id in mine]
    assert len(answered) == len(set(answered))
    assert set(answered) <= recorded
    refused = [reason for mine in agents.refused for reason in mine]
    assert all(reason == 503 or "could not be recorded" in str(reason) for reason in refused)
    assert bool(refused) == (patience_s < AWAY_S)


@pytest.mark.parametrize("away_s", [pytest.param(0.0, id="for a moment"), pytest.param(AWAY_S, marks=LONG, id="30 s")])
def test_what_the_gateway_acknowledged_to_stock_clients_is_there(
    private_broker: EmbeddedBroker, private_settings: Settings, away_s: float
) -> None:
    """The clients try again by themselves while they are told to, six times in all: for a minute, with these waits."""
    changes = {"gateway_port": 0, "gateway_grpc_port": 0, "gateway_wait_s": 10.0}
    server = gateway(private_settings.model_copy(update=changes))
    url = server.start()
    exporters: list[SpanExporter] = [
        HttpSpanExporter(f"{url}/v1/traces", timeout=120),
        GrpcSpanExporter(discover(private_settings, "gateway-grpc").address, timeout=120),
    ]
    acknowledged: list[list[str]] = [[] for _ in exporters]
    stop = threading.Event()

    def send(number: int) -> None:
        spans = Spans()
        while not stop.is_set():
            name = f"{number}-{len(acknowledged[number])}"
            spans.tracer.start_span(name).end()
            ended = spans.ended()
            spans.memory.clear()
            assert exporters[number].export(ended) is SpanExportResult.SUCCESS
            acknowledged[number].append(name)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(len(exporters))]
    for thread in threads:
        thread.start()
    _wait_for_more(lambda: acknowledged)
    private_broker.kill()
    before = [len(names) for names in acknowledged]
    threading.Event().wait(away_s)
    assert all(len(names) <= was + 1 for names, was in zip(acknowledged, before, strict=True))
    private_broker.start()
    _wait_for_more(lambda: acknowledged)
    stop.set()
    for thread in threads:
        thread.join(180)
    for exporter in exporters:
        exporter.shutdown()
    server.stop()
    spans = read_spans(private_settings)
    names = {span.name for span in spans}
    assert {name for mine in acknowledged for name in mine} == names, "none is lost, and none failed for good"
    assert len({(span.trace_id, span.span_id) for span in spans}) == len(names), "what came twice is one"


@pytest.mark.parametrize("away_s", [pytest.param(0.0, id="for a moment"), pytest.param(AWAY_S, marks=LONG, id="30 s")])
def test_the_exporter_waits_and_every_span_is_there_once(
    private_broker: EmbeddedBroker, private_settings: Settings, away_s: float
) -> None:
    exporter = KafkaSpanExporter(private_settings)
    spans = Spans()
    stop, attempt = threading.Event(), AttemptRef("r", "r-a1")

    def make_spans() -> None:
        while not stop.wait(1 / SPANS_PER_S):
            spans.tracer.start_span("n", attributes={"lightstream.response_token_ids": list(range(640))}).end()
            (span,) = spans.ended()
            spans.memory.clear()
            assert exporter.submit(span, attempt)

    agent = threading.Thread(target=make_spans)
    agent.start()
    _wait_for_spans(exporter)
    private_broker.kill()
    handed_over = exporter.stats.handed_over
    threading.Event().wait(away_s)
    eventually(lambda: exporter.stats.handed_over > handed_over + 100, what="the agent goes on meanwhile")
    private_broker.start()
    _wait_for_spans(exporter)
    stop.set()
    agent.join(300)
    exporter.flush(attempt)
    stats = exporter.stats
    exporter.shutdown()
    assert stats.durable == stats.handed_over
    assert (stats.failed, stats.rejected) == (0, 0)
    records = read_spans(private_settings)
    assert len(records) == len({record.span_id for record in records}) == stats.durable


def _wait_for_spans(exporter: KafkaSpanExporter) -> None:
    durable = exporter.stats.durable
    eventually(lambda: exporter.stats.durable > durable + 100, what="spans become durable")


def _wait_for_more(lists: Callable[[], list[list[str]]]) -> None:
    before = [len(names) for names in lists()]
    eventually(
        lambda: all(len(names) > was + 5 for names, was in zip(lists(), before, strict=True)),
        what="spans are acknowledged",
    )
