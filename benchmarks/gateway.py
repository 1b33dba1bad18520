"""The OTLP gateway: spans/s of large compressed requests, and how long one-span requests take under a steady load.

``python -m benchmarks.gateway`` prints a table, and with ``--json`` one JSON object. Uses the cluster named by
``LIGHTSTREAM_KAFKA_BOOTSTRAP_SERVERS``, or a broker of its own. The gateway is a process of its own; requests are built
beforehand. ``cpu_us_per_span`` is the gateway's own processor time: the figure to compare on a busy machine.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from lightstream.runtime.services import Service, find
from lightstream.runtime.settings import Settings

from .cluster import cluster
from .command import run

SPANS_PER_REQUEST = 512
PROMPT_TOKENS, RESPONSE_TOKENS = 512, 128
CONNECTIONS = 4
RATE_PER_S = 500.0
START_TIMEOUT_S = 60.0


def measure(*, requests: int = 60, one_span_requests: int = 5000) -> dict[str, float]:
    """All figures; times in milliseconds (of processor time: microseconds), rates per second."""
    with cluster() as kafka, _gateway(kafka.settings(gateway_port=0, gateway_grpc_port=0)) as service:
        asyncio.run(_throughput(service, 4))  # warm up
        return asyncio.run(_throughput(service, requests)) | asyncio.run(_latency(service, one_span_requests))


async def _throughput(service: Service, requests: int) -> dict[str, float]:
    bodies = [gzip.compress(_request(SPANS_PER_REQUEST, number), 6) for number in range(4)]
    left = iter(range(requests))

    async def work(session: aiohttp.ClientSession) -> None:
        for number in left:
            await _post(session, service, bodies[number % len(bodies)], compressed=True)

    async with aiohttp.ClientSession() as session:
        cpu_s, began_s = _cpu_s(service.pid), time.perf_counter()
        await asyncio.gather(*(work(session) for _ in range(CONNECTIONS)))
        seconds, cpu_s = time.perf_counter() - began_s, _cpu_s(service.pid) - cpu_s
    spans = requests * SPANS_PER_REQUEST
    return {
        "request_bytes": len(bodies[0]),
        "spans_per_s": spans / seconds,
        "cpu_us_per_span": cpu_s / spans * 1e6,
    }


async def _latency(service: Service, requests: int) -> dict[str, float]:
    bodies = [_request(1, number) for number in range(100)]
    durations_s: list[float] = []

    async def one(session: aiohttp.ClientSession, number: int, due_s: float) -> None:
        await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
        await _post(session, service, bodies[number % len(bodies)], compressed=False)
        durations_s.append(time.perf_counter() - due_s)  # from when it was due: a late start counts

    async with aiohttp.ClientSession() as session:
        cpu_s, began_s = _cpu_s(service.pid), time.perf_counter() + 0.2
        await asyncio.gather(*(one(session, number, began_s + number / RATE_PER_S) for number in range(requests)))
        cpu_s = _cpu_s(service.pid) - cpu_s
    cuts = statistics.quantiles(durations_s, n=100)
    return {
        "one_span_per_s": RATE_PER_S,
        "one_span_p50_ms": cuts[49] * 1e3,
        "one_span_p99_ms": cuts[98] * 1e3,
        "one_span_cpu_us": cpu_s / requests * 1e6,
    }


async def _post(session: aiohttp.ClientSession, service: Service, body: bytes, *, compressed: bool) -> None:
    headers = {"content-type": "application/x-protobuf"} | ({"content-encoding": "gzip"} if compressed else {})
    async with session.post(f"{service.address}/v1/traces", data=body, headers=headers) as answer:
        answer.raise_for_status()


def _request(spans: int, seed: int) -> bytes:
    draw = random.Random(seed)
    request = ExportTraceServiceRequest()
    scope_spans = request.resource_spans.add().scope_spans.add()
    for _ in range(spans):
        span = scope_spans.spans.add(trace_id=draw.randbytes(16), span_id=draw.randbytes(8), name="chat")
        span.start_time_unix_nano, span.end_time_unix_nano = 1_700_000_000_000_000_000, 1_700_000_001_000_000_000
        for name, count in (("prompt_token_ids", PROMPT_TOKENS), ("response_token_ids", RESPONSE_TOKENS)):
            values = span.attributes.add(key=name).value.array_value.values
            for _ in range(count):
                values.add(int_value=draw.randrange(150_000))
        for number in range(8):
            span.attributes.add(key=f"gen_ai.attribute.{number}").value.string_value = "value"
    encoded: bytes = request.SerializeToString()
    return encoded


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _gateway(settings: Settings) -> Generator[Service]:
    command = [sys.executable, "-m", "lightstream.cli", "gateway"]
    process = subprocess.Popen(command, env=os.environ | settings.to_environment())
    deadline = time.monotonic() + START_TIMEOUT_S
    try:
        while (service := find(settings, "gateway")) is None:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the gateway did not start")
            time.sleep(0.05)
        yield service
    finally:
        process.terminate()
        process.wait(30)


def main() -> None:
    """Measure and print."""
    run(__doc__, measure)


if __name__ == "__main__":
    main()
