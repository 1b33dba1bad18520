"""OTLP requests: traces of an agent that calls a model and tools, by the conventions for generative AI; and how fast
a server takes them."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Iterable

import aiohttp
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from .servers import Server

SPANS_PER_TRACE = 10
WORDS = ("we", "look", "for", "the", "smallest", "change", "that", "makes", "this", "test", "pass", "and", "say")
MESSAGE_WORDS = 120
SECOND = 1_000_000_000

SPANS_PER_REQUEST = 500
CONNECTIONS = 4
BUSY = (429, 503)
BUSY_PAUSE_S = 0.2
COUNT_INTERVAL_S = 0.1
PATIENCE_S = 900.0


def traces_request(spans: int, seed: int) -> bytes:
    """A request with traces of ten spans: an agent's, five calls of a model, four of tools."""
    draw = random.Random(seed)
    request = ExportTraceServiceRequest()
    for _ in range(spans // SPANS_PER_TRACE):
        _add_trace(request, draw, SPANS_PER_TRACE)
    encoded: bytes = request.SerializeToString()
    return encoded


def trace_request(spans: int, seed: int, *, attributes: dict[str, str]) -> tuple[str, bytes]:
    """A trace of so many spans: its id in hexadecimal, and the request."""
    request = ExportTraceServiceRequest()
    trace_id = _add_trace(request, random.Random(seed), spans, attributes)
    return trace_id.hex(), request.SerializeToString()


def spans_per_s(server: Server, spans: int, seed: int) -> float:
    """Send so many spans, new ones for each seed, and wait until the server has stored them all."""
    requests = [traces_request(SPANS_PER_REQUEST, seed * 100_000 + n) for n in range(spans // SPANS_PER_REQUEST)]
    wanted = server.count() + len(requests) * SPANS_PER_REQUEST
    began_s = time.perf_counter()
    asyncio.run(_send(server, requests))
    while server.count() < wanted:
        if time.perf_counter() - began_s > PATIENCE_S:
            raise TimeoutError(f"{server.name} has {server.count():,} of {wanted:,} spans")
        time.sleep(COUNT_INTERVAL_S)
    return len(requests) * SPANS_PER_REQUEST / (time.perf_counter() - began_s)


async def _send(server: Server, requests: Iterable[bytes]) -> None:
    left = iter(requests)
    headers = {"content-type": "application/x-protobuf", **server.headers}

    async def work(session: aiohttp.ClientSession) -> None:
        for body in left:
            while True:  # a server that is busy is asked again, as exporters do
                async with session.post(server.traces_url, data=body, headers=headers) as answer:
                    if answer.status not in BUSY:
                        answer.raise_for_status()
                        break
                await asyncio.sleep(BUSY_PAUSE_S)

    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*(work(session) for _ in range(CONNECTIONS)))


def _add_trace(
    request: ExportTraceServiceRequest, draw: random.Random, spans: int, attributes: dict[str, str] | None = None
) -> bytes:
    resource = request.resource_spans.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "agent"
    for name, value in (attributes or {}).items():
        resource.resource.attributes.add(key=name).value.string_value = value
    trace_id, root_id = draw.randbytes(16), draw.randbytes(8)
    start = time.time_ns() - 3600 * SECOND
    every = resource.scope_spans.add().spans
    for number in range(spans):
        is_root, is_call = number == 0, number % 2 == 1
        span = every.add(
            trace_id=trace_id,
            span_id=root_id if is_root else draw.randbytes(8),
            parent_span_id=b"" if is_root else root_id,
            name="invoke_agent" if is_root else f"chat {number}" if is_call else f"execute_tool {number}",
            kind=1,
            start_time_unix_nano=start + number * SECOND // 10,
            end_time_unix_nano=start + (spans if is_root else number + 1) * SECOND // 10,
        )
        texts = {"gen_ai.operation.name": "chat" if is_call else "execute_tool"}
        if is_call:
            texts["gen_ai.request.model"] = "policy"
            texts["gen_ai.input.messages"] = _message("user", draw)
            texts["gen_ai.output.messages"] = _message("assistant", draw)
            for name in ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"):
                span.attributes.add(key=name).value.int_value = draw.randrange(1, 1000)
        for name, text in texts.items():
            span.attributes.add(key=name).value.string_value = text
    return trace_id


def _message(role: str, draw: random.Random) -> str:
    text = " ".join(draw.choices(WORDS, k=MESSAGE_WORDS))
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])
