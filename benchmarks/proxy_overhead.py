"""Time that the LLM proxy adds to calls: to whole answers, to the first token, and to its own memory.

``python -m benchmarks.proxy_overhead`` prints a table, and with ``--json`` one JSON object. Uses the cluster named by
``LIGHTSTREAM_KAFKA_BOOTSTRAP_SERVERS``, or a broker of its own. 32 agents call at once, and again as soon as they have
their answer, a model server that answers after a fixed 200 ms; first directly, then through the proxy. Streams bring
16 tokens, 10 ms apart, each with the time at which the server let it go: ``token_ms`` is what has passed when the agent
has it. Each server is a process of its own. Then ``memory_calls`` calls, every second one a stream, to a server that
answers at once: the proxy's resident memory after a fifth, three fifths, and all of them. Targets: 5 ms added at the
median, to whole answers and to first tokens; memory flat.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import aiohttp

from lightstream.runtime.settings import Settings

from .cluster import cluster
from .command import run
from .proxy import EXTRAS, RUN_PROXY, Server, process

AGENTS = 32
ANSWER_S = 0.2
TOKENS, TOKEN_INTERVAL_S = 16, 0.01
AT_ONCE = "at once"
"""Model whose answers do not wait."""

RUN_SLOW = (
    "from lightstream.runtime.settings import Settings as S; "
    "from benchmarks.proxy_overhead import serve_slow_answers as run; run(S.load())"
)
STAMP = re.compile(rb'"content":\s*"(\d+)"')


def measure(*, calls: int = 3200, memory_calls: int = 50_000) -> dict[str, float]:
    """All figures: times in milliseconds, memory in MB."""
    with cluster() as kafka:
        settings = kafka.settings()
        with process(settings, "slow", RUN_SLOW) as slow:
            forwarding = settings.model_copy(update={"llm_upstream_url": f"{slow.url}/v1"})
            with process(forwarding, "proxy", RUN_PROXY) as proxy:
                figures = asyncio.run(_added(slow, proxy, calls))
            with process(forwarding, "proxy", RUN_PROXY) as proxy:
                return figures | asyncio.run(_memory(proxy, memory_calls)) | {"load_average": os.getloadavg()[0]}


async def _added(slow: Server, proxy: Server, calls: int) -> dict[str, float]:
    figures: dict[str, float] = {"agents": AGENTS}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        for name, server in (("direct", slow), ("proxy", proxy)):
            await _calls(session, server, AGENTS, streams=True)  # warm up
            took_ms, _ = await _calls(session, server, calls, streams=False)
            first_ms, token_ms = await _calls(session, server, calls // 4, streams=True)
            for what, times_ms in (("call", took_ms), ("first_token", first_ms), ("token", token_ms)):
                cuts = statistics.quantiles(times_ms, n=100)
                figures |= {f"{name}_{what}_p50_ms": cuts[49], f"{name}_{what}_p99_ms": cuts[98]}
    for what in ("call", "first_token", "token"):
        for cut in ("p50", "p99"):
            added_ms = figures[f"proxy_{what}_{cut}_ms"] - figures[f"direct_{what}_{cut}_ms"]
            figures[f"added_to_{what}_{cut}_ms"] = added_ms
    return figures


async def _memory(proxy: Server, calls: int) -> dict[str, float]:
    figures: dict[str, float] = {}
    done = 0
    began_s, cpu_s = time.perf_counter(), proxy.cpu_s()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        for fifths in (1, 3, 5):
            to_do = calls * fifths // 5 - done
            for streams in (False, True):
                await _calls(session, proxy, to_do // 2, streams=streams, model=AT_ONCE, first=done)
            done += to_do
            figures[f"memory_after_{done}_calls_mb"] = _resident_mb(proxy.pid)
    elapsed_s = time.perf_counter() - began_s
    return figures | {"calls_per_s": calls / elapsed_s, "cpu_ms_per_call": (proxy.cpu_s() - cpu_s) / calls * 1e3}


async def _calls(
    session: aiohttp.ClientSession, server: Server, count: int, *, streams: bool, model: str = "m", first: int = 0
) -> tuple[list[float], list[float]]:
    """Milliseconds of whole calls; or of streams from when a token was let go until it was here, first ones and all."""
    left = iter(range(first, first + count))
    firsts_ms: list[float] = []
    all_ms: list[float] = []

    async def work() -> None:
        for number in left:
            url = f"{server.url}/rollout/r{number}/attempt/r{number}-a1/v1/chat/completions"
            began_s = time.perf_counter()
            async with session.post(url, data=_body(number, model, streams)) as response:
                if not streams:
                    await response.read()
                    firsts_ms.append((time.perf_counter() - began_s) * 1e3)
                else:
                    delays_ms = [delay_ms async for delay_ms in _delays_ms(response)]
                    firsts_ms.append(delays_ms[0])
                    all_ms.extend(delays_ms)
                assert response.status == 200, response.status

    await asyncio.gather(*(work() for _ in range(AGENTS)))
    return firsts_ms, all_ms


async def _delays_ms(response: aiohttp.ClientResponse) -> AsyncGenerator[float]:
    """Of each token that comes."""
    async for piece in response.content.iter_any():
        now_ns = time.perf_counter_ns()  # of the machine, not of the process
        for stamp in STAMP.findall(piece):
            yield (now_ns - int(stamp)) / 1e6


def _body(number: int, model: str, streams: bool) -> bytes:
    messages = [{"role": "user", "content": f"question {number} " + 40 * "word "}]
    return json.dumps({"model": model, "messages": messages, "stream": streams} | EXTRAS).encode()


def _resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def serve_slow_answers(settings: Settings) -> None:
    """The model server: 200 ms for an answer, or for a stream's first token; none of that for the model ``at once``."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import Route

    from lightstream.runtime.http.server import HttpServer

    logprob = {"token": "a", "logprob": -5.4, "bytes": [97], "top_logprobs": []}
    head: dict[str, Any] = {"id": "chatcmpl-1", "model": "policy@0", "created": 1}
    ids = list(range(80))
    whole = {
        "index": 0,
        "message": {"role": "assistant", "content": "a" * TOKENS},
        "finish_reason": "stop",
        "token_ids": ids[:TOKENS],
        "logprobs": {"content": [logprob] * TOKENS},
    }
    data = json.dumps(head | {"choices": [whole], "prompt_token_ids": ids}).encode()

    async def pieces(interval_s: float) -> AsyncGenerator[bytes]:
        for number in range(TOKENS):
            choice = {
                "index": 0,
                "delta": {"content": str(time.perf_counter_ns())},
                "finish_reason": "stop" if number == TOKENS - 1 else None,
                "token_ids": [number],
                "logprobs": {"content": [logprob]},
            }
            prompt = {"prompt_token_ids": ids} if number == 0 else {}
            yield b"data: " + json.dumps(head | {"choices": [choice]} | prompt).encode() + b"\n\n"
            await asyncio.sleep(interval_s)
        yield b"data: [DONE]\n\n"

    async def chat(request: Request) -> Response:
        asked = json.loads(await request.body())
        waits = asked["model"] != AT_ONCE
        await asyncio.sleep(ANSWER_S if waits else 0)
        if asked["stream"]:
            return StreamingResponse(pieces(TOKEN_INTERVAL_S if waits else 0), media_type="text/event-stream")
        return Response(data, media_type="application/json")

    paths = ("/v1/chat/completions", "/rollout/{rollout}/attempt/{attempt}/v1/chat/completions")
    app = Starlette(routes=[Route(path, chat, methods=["POST"]) for path in paths])
    HttpServer(app, settings, name="slow", port=0, setting="").run()


def main() -> None:
    """Measure and print."""
    run(__doc__, measure, calls=3200, memory_calls=50_000)


if __name__ == "__main__":
    main()
