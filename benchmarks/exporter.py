"""The span exporter: spans/s until durable, and how long an agent is blocked in ``span.end()``.

``python -m benchmarks.exporter`` prints a table, and with ``--json`` one JSON object. Uses the cluster named by
``LIGHTSTREAM_KAFKA_BOOTSTRAP_SERVERS``, or a broker of its own. Each span is an LLM call with 320 prompt and 320
response token ids and their log-probabilities; spans are built beforehand by the real SDK (building one there takes
longer than exporting it). Targets: 20,000 spans/s; ``span.end()`` p99 of 0.1 ms.
"""

from __future__ import annotations

import gc
import os
import statistics
import time

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.util.types import AttributeValue

from lightstream.producers.exporter import KafkaSpanExporter
from lightstream.producers.tracer import OtelTracer
from lightstream.runtime.settings import Settings

from .cluster import cluster
from .command import run

TOKENS = 320
ATTRIBUTES: dict[str, AttributeValue] = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "policy",
    "gen_ai.response.id": "chatcmpl-0123456789",
    "gen_ai.response.model": "policy@7",
    "gen_ai.usage.input_tokens": TOKENS,
    "gen_ai.usage.output_tokens": TOKENS,
    "lightstream.policy_version": 7,
    "lightstream.prompt_token_ids": list(range(1000, 1000 + TOKENS)),
    "lightstream.response_token_ids": list(range(2000, 2000 + TOKENS)),
    "lightstream.response_logprobs": [-0.001 * i for i in range(TOKENS)],
}
DISTINCT_SPANS = 2000
BUFFER_BYTES_MAX = 8 * 1024**3
"""The spans exist once and are handed over again and again: the exporter's estimate of their memory is far too high."""


def measure(*, spans: int = 50_000, rounds: int = 3) -> dict[str, float]:
    """All figures: rates per second (best of ``rounds``), times in milliseconds, CPU time in microseconds."""
    with cluster() as kafka:
        settings = kafka.settings()
        built = _built_spans()
        gc.collect()
        gc.freeze()  # two million token ids of the prepared spans are no part of what is measured
        figures = _throughput(settings, built, spans, rounds)
        return figures | _blocking(settings, min(spans, 20_000)) | {"load_average": os.getloadavg()[0]}


def _built_spans() -> list[ReadableSpan]:
    memory = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    tracer = provider.get_tracer("benchmark")
    for _ in range(DISTINCT_SPANS):
        tracer.start_span("chat policy", attributes=ATTRIBUTES).end()
    return list(memory.get_finished_spans())


def _throughput(settings: Settings, built: list[ReadableSpan], spans: int, rounds: int) -> dict[str, float]:
    exporter = KafkaSpanExporter(settings, buffer_bytes_max=BUFFER_BYTES_MAX)
    exporter.export(built[:100])
    exporter.flush()  # connected
    rates: list[float] = []
    cpu_us: list[float] = []
    for _ in range(rounds):
        started, cpu_started = time.perf_counter(), time.process_time()
        for i in range(spans):
            exporter.submit(built[i % DISTINCT_SPANS])
        exporter.flush(timeout_s=600)
        rates.append(spans / (time.perf_counter() - started))
        cpu_us.append((time.process_time() - cpu_started) / spans * 1e6)
    stats = exporter.stats
    exporter.shutdown()
    if stats.durable != spans * rounds + 100:
        raise RuntimeError(f"{spans * rounds + 100} spans were handed over, {stats.durable} became durable")
    return {"spans_per_s": max(rates), "spans_per_s_median": statistics.median(rates), "cpu_us_per_span": min(cpu_us)}


def _blocking(settings: Settings, spans: int) -> dict[str, float]:
    """Measures how long ``span.end()`` takes an agent that does nothing but make spans, while they are sent."""
    tracer = OtelTracer(settings)
    took_ms: list[float] = []
    with tracer.trace_context(rollout_id="r", attempt_id="r-a1") as otel:
        for _ in range(spans):
            span = otel.start_span("chat policy", attributes=ATTRIBUTES)
            started = time.perf_counter()
            span.end()
            took_ms.append((time.perf_counter() - started) * 1e3)
    stats = tracer.exporter.stats
    tracer.close()
    if stats.durable != spans:
        raise RuntimeError(f"{spans} spans were ended, {stats.durable} became durable")
    took_ms.sort()
    return {
        "end_ms_p50": took_ms[spans // 2],
        "end_ms_p99": took_ms[spans * 99 // 100],
        "end_ms_max": took_ms[-1],
    }


def main() -> None:
    """Measure and print."""
    run(__doc__, measure, spans=50_000)


if __name__ == "__main__":
    main()
