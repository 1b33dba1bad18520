"""The LLM proxy and the policy server: requests/s of each, what the proxy adds to a call, and the first token's delay.

``python -m benchmarks.proxy`` prints a table, and with ``--json`` one JSON object. Uses the cluster named by
``LIGHTSTREAM_KAFKA_BOOTSTRAP_SERVERS``, or a broker of its own. The policy is the tiny random model on the CPU; each
server is a process of its own. ``proxy_alone`` forwards to a server that answers at once with the same words.
``cpu_ms_per_request`` is the server's own processor time: the figure to compare on a busy machine.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from lightstream.runtime.services import find
from lightstream.runtime.settings import Settings
from lightstream.trainers.run.model.tiny_model import make_tiny_model

from .cluster import cluster
from .command import run

QUESTION = "What is the greatest common divisor of {:>5} and 36? Answer w"
"""64 characters, as the demonstration's tasks."""

GROUP_SIZE = 8
"""Requests in a row that ask the same question, as a group of samples does."""

START_TIMEOUT_S = 120.0
EXTRAS = {"logprobs": True, "return_token_ids": True}

RUN_POLICY = (
    "import sys; from pathlib import Path; from lightstream.runtime.settings import Settings as S; "
    "from lightstream.trainers.servers.cpu import run; run(S.load(), checkpoint=Path(sys.argv[1]))"
)
RUN_PROXY = (
    "from lightstream.runtime.settings import Settings as S; "
    "from lightstream.producers.llm_proxy import run; run(S.load())"
)
RUN_CANNED = (
    "from lightstream.runtime.settings import Settings as S; "
    "from benchmarks.proxy import serve_canned_answers as run; run(S.load())"
)


@dataclass(frozen=True, slots=True)
class Server:
    """A running server."""

    url: str
    pid: int

    def cpu_s(self) -> float:
        """Processor time it has used, all threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text("ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(*, requests: int = 2000, concurrency: int = 64) -> dict[str, float]:
    """All figures; times in milliseconds, rates per second."""
    with cluster() as kafka, ExitStack() as stack:
        model = make_tiny_model(kafka.data_dir / "model")
        settings = kafka.settings()
        policy = stack.enter_context(process(settings, "policy", RUN_POLICY, str(model)))
        figures: dict[str, float] = {}
        with process(settings, "proxy", RUN_PROXY) as proxy:
            figures |= asyncio.run(_compare(policy, proxy, requests, concurrency))
        with process(settings, "canned", RUN_CANNED) as canned:
            forwarding = settings.model_copy(update={"llm_upstream_url": f"{canned.url}/v1"})
            with process(forwarding, "proxy", RUN_PROXY) as proxy:
                alone = asyncio.run(_load(proxy, requests, concurrency, max_tokens=1))
                figures["proxy_alone_requests_per_s"] = alone["requests_per_s"]
                figures["proxy_alone_cpu_ms_per_request"] = alone["cpu_ms_per_request"]
                one = asyncio.run(_load(proxy, 300, 1, max_tokens=1))
                bare = asyncio.run(_load(canned, 300, 1, max_tokens=1))
                figures["added_idle_p50_ms"] = one["p50_ms"] - bare["p50_ms"]
                figures["added_idle_p99_ms"] = one["p99_ms"] - bare["p99_ms"]
        return figures


async def _compare(policy: Server, proxy: Server, requests: int, concurrency: int) -> dict[str, float]:
    figures: dict[str, float] = {"concurrency": concurrency}
    for tokens in (1, 16):
        count = requests if tokens == 1 else requests // 4
        for name, server in (("policy", policy), ("proxy", proxy)):
            await _load(server, concurrency, concurrency, max_tokens=tokens)  # warm up
            result = await _load(server, count, concurrency, max_tokens=tokens)
            figures |= {f"{name}_{tokens}_tokens_{key}": value for key, value in result.items()}
    for name, server in (("policy", policy), ("proxy", proxy)):
        figures[f"{name}_first_token_p50_ms"] = await _first_token_ms(server.url, 50)
    return figures


async def _load(server: Server, requests: int, concurrency: int, *, max_tokens: int) -> dict[str, float]:
    durations_s: list[float] = []
    left = iter(range(requests))

    async def work(session: aiohttp.ClientSession) -> None:
        for number in left:
            data = _body(number, max_tokens, **EXTRAS)
            began = time.perf_counter()
            async with session.post(f"{server.url}/v1/chat/completions", data=data) as response:
                await response.read()
                assert response.status == 200, response.status
            durations_s.append(time.perf_counter() - began)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        began, cpu_before_s = time.perf_counter(), server.cpu_s()
        await asyncio.gather(*(work(session) for _ in range(concurrency)))
        elapsed_s, cpu_s = time.perf_counter() - began, server.cpu_s() - cpu_before_s
    hundredths = statistics.quantiles(durations_s, n=100)
    return {
        "requests_per_s": requests / elapsed_s,
        "cpu_ms_per_request": cpu_s / requests * 1000,
        "p50_ms": statistics.median(durations_s) * 1000,
        "p99_ms": hundredths[98] * 1000,
    }


def _body(number: int, max_tokens: int, **parameters: Any) -> bytes:
    messages = [{"role": "user", "content": QUESTION.format(number // GROUP_SIZE)}]
    return json.dumps({"model": "policy", "messages": messages, "max_tokens": max_tokens} | parameters).encode()


async def _first_token_ms(url: str, requests: int) -> float:
    delays_ms: list[float] = []
    async with aiohttp.ClientSession() as session:
        for number in range(requests):
            data = _body(number * GROUP_SIZE, 16, stream=True)
            began = time.perf_counter()
            async with session.post(f"{url}/v1/chat/completions", data=data) as response:
                await response.content.readany()
                delays_ms.append((time.perf_counter() - began) * 1000)
                await response.read()
    return statistics.median(delays_ms)


def serve_canned_answers(settings: Settings) -> None:
    """A server that gives every chat request the same answer."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from lightstream.runtime.http.server import HttpServer

    logprob = {"token": "a", "logprob": -5.4, "bytes": [97], "top_logprobs": []}
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "a"},
        "finish_reason": "length",
        "token_ids": [70],
        "logprobs": {"content": [logprob]},
    }
    answer = {"id": "chatcmpl-1", "model": "policy@0", "choices": [choice], "prompt_token_ids": list(range(80))}
    data = json.dumps(answer).encode()

    async def chat(request: Request) -> Response:
        await request.body()
        return Response(data, media_type="application/json")

    app = Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])
    HttpServer(app, settings, name="canned", port=0, setting="").run()


@contextmanager
def process(settings: Settings, name: str, program: str, *arguments: str) -> Generator[Server]:
    """Run a server in a process of its own."""
    environment = os.environ | settings.to_environment()
    process = subprocess.Popen([sys.executable, "-c", program, *arguments], env=environment)
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while (service := find(settings, name)) is None or service.pid != process.pid:
            assert time.monotonic() < deadline, f"{name} did not start"
            assert process.poll() is None, f"{name} ended with {process.returncode}"
            time.sleep(0.05)
        yield Server(service.address, process.pid)
    finally:
        process.terminate()
        process.wait(30)


def main() -> None:
    """Measure and print."""
    run(__doc__, measure, requests=2000, concurrency=64)


if __name__ == "__main__":
    main()
