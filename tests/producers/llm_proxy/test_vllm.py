"""A real vLLM behind the proxy: what it said, byte by byte, is what is recorded. ``make test-vllm`` runs it.

Its record is what went over the wire, kept between it and the proxy and read here by other code than the proxy's.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.ports import free_port
from lightstream.runtime.settings import Settings
from lightstream.schemas.packing import pack_float32, pack_int32
from lightstream.trainers.run.model.tiny_model import make_tiny_model
from tests.producers.llm_proxy.conftest import StartProxy
from tests.producers.llm_proxy.exact.calls import ROUTES, Asked, ask_all, draw
from tests.producers.llm_proxy.exact.compare import Tokens, assert_no_differences
from tests.producers.support import read_spans
from tests.support.waiting import eventually

pytestmark = pytest.mark.vllm

PYTHON = Path(os.environ.get("LIGHTSTREAM_TEST_VLLM_PYTHON", Path(__file__).parents[3] / ".venv-vllm/bin/python"))
SEED = int(os.environ.get("LIGHTSTREAM_TEST_SEED", random.SystemRandom().randrange(10**6)))
CALLS = 60
TOKENS_MAX = 60
MODEL = "policy"
START_TIMEOUT_S = 500.0
STOP_TIMEOUT_S = 20.0

ENVIRONMENT = {
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
}
OPTIONS = (
    "--max-model-len 1024 --max-num-seqs 16 --dtype float32 --enforce-eager --logprobs-mode processed_logprobs "
    "--enable-auto-tool-choice --tool-call-parser hermes"
)


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A running server of the tiny model; its URL."""
    folder = tmp_path_factory.mktemp("vllm")
    with serving(make_tiny_model(folder / "model"), folder / "log") as url:
        yield url


@contextmanager
def serving(model: Path, log_file: Path) -> Generator[str]:
    """A running vLLM that serves a folder under the name ``policy``; its URL."""
    assert PYTHON.exists(), (
        f"there is no {PYTHON}: run `make test-vllm`, or name another in LIGHTSTREAM_TEST_VLLM_PYTHON"
    )
    port = free_port()
    command = [
        str(PYTHON),
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--model",
        str(model),
        "--served-model-name",
        MODEL,
    ]
    command += ["--host", "127.0.0.1", "--port", str(port), *OPTIONS.split()]
    with log_file.open("wb") as log:
        server = subprocess.Popen(command, env=os.environ | ENVIRONMENT, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert server.poll() is None, log_file.read_text("utf-8")[-5000:]
        try:
            return httpx.get(f"{url}/v1/models", timeout=5).status_code == 200
        except httpx.HTTPError:
            return False

    try:
        eventually(answers, timeout_s=START_TIMEOUT_S, what="vLLM serves")
        yield url
    finally:
        server.terminate()
        try:
            server.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


class Tap:
    """Between the proxy and the model server: passes on every byte, and keeps it.

    Attributes:
        said: the body of each answer.
    """

    def __init__(self, url: str) -> None:
        self._client = httpx.AsyncClient(base_url=url, timeout=300)
        self.said: list[bytearray] = []
        paths = ("/v1/chat/completions", "/v1/completions")
        self.app = Starlette(routes=[Route(path, self._pass_on, methods=["POST"]) for path in paths])

    async def _pass_on(self, request: Request) -> Response:
        asking = self._client.build_request(
            "POST", request.url.path, content=await request.body(), headers={"content-type": "application/json"}
        )
        answer = await self._client.send(asking, stream=True)
        kept = bytearray()
        self.said.append(kept)

        async def pieces() -> AsyncGenerator[bytes]:
            async for piece in answer.aiter_raw():
                kept.extend(piece)
                yield piece
            await answer.aclose()

        return StreamingResponse(pieces(), answer.status_code, media_type=answer.headers["content-type"])


def _sampled(said: bytes) -> dict[tuple[str, int], Tokens]:
    """What one answer says, whole or streamed: id and choice -> tokens."""
    lines = said.decode().splitlines()
    data = [line[6:] for line in lines if line.startswith("data: ") and line != "data: [DONE]"] or [said.decode()]
    prompts: dict[int, list[int]] = {}
    ids: dict[int, list[int]] = {}
    logprobs: dict[int, list[float]] = {}
    bodies: list[Any] = [json.loads(text) for text in data]
    for body in bodies:
        for choice in body["choices"]:
            index: int = choice["index"]
            prompts.setdefault(index, choice.get("prompt_token_ids") or body.get("prompt_token_ids") or [])
            ids.setdefault(index, []).extend(choice.get("token_ids") or [])
            told = choice.get("logprobs") or {}
            numbers = told.get("token_logprobs") or [entry["logprob"] for entry in told.get("content") or []]
            logprobs.setdefault(index, []).extend(numbers)
    return {
        (bodies[0]["id"], index): (pack_int32(prompts[index]), pack_int32(ids[index]), pack_float32(logprobs[index]))
        for index in ids
    }


def test_what_vllm_said_is_recorded_and_assembled(vllm: str, start_proxy: StartProxy, settings: Settings) -> None:
    """Streaming, required tools, structured output and several choices, over every interface."""
    print(f"seed {SEED} (set LIGHTSTREAM_TEST_SEED to repeat)")
    tap = Tap(vllm)
    server = HttpServer(tap.app, settings, name="tap", port=0, setting="")
    calls: list[Asked] = []
    for number in range(CALLS):
        call = draw(number, SEED)
        # A random model calls tools only where it must; with arguments that a whole message has no words for.
        tools = call.tools and (call.streams or call.route != "messages")
        structured = call.structured and not tools
        calls.append(
            replace(call, model=MODEL, tools=tools, must_call=tools, structured=structured, tokens_max=TOKENS_MAX)
        )
    assert {(call.route, call.streams) for call in calls} == {(r, streams) for r in ROUTES for streams in (False, True)}
    asyncio.run(ask_all(start_proxy(llm_upstream_url=f"{server.start()}/v1"), calls))
    server.stop()
    assert len(tap.said) == CALLS
    sampled = {key: tokens for said in tap.said for key, tokens in _sampled(bytes(said)).items()}
    assert len(sampled) == sum(call.choices * call.prompts for call in calls)
    assert_no_differences(sampled, read_spans(settings))
