"""An answer in parts: wherever it was interrupted, a client has the text once, and no half characters."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import httpx
import pytest

from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.settings import Settings
from lightstream.trainers.servers.chat_api.generation import INTERRUPTED, Generation, Job
from lightstream.trainers.servers.chat_api.requests import ChatRequest, parse_chat_request
from lightstream.trainers.servers.chat_api.responses import AnswerHead
from lightstream.trainers.servers.chat_api.streaming import stream_answer
from lightstream.trainers.servers.chat_api.text import StopWatcher
from lightstream.trainers.servers.cpu import create_app
from lightstream.trainers.servers.cpu.policy_version import PolicyVersion
from tests.trainers.policy_server.support import new_versions

SAID = '3 € für 🙂🙂 é <tool_call>{"name": "größe", "arguments": {"a": "ß"}}</tool_call>'
MODEL_TOKENS = 264
"""Of the tiny model: more than the 259 of its tokenizer, and it may sample each of them."""

HEAD = AnswerHead("id", 0, "policy@0", 0)


def _request(**parameters: Any) -> ChatRequest:
    return parse_chat_request({"messages": [{"role": "user", "content": "hi"}], "stream": True} | parameters)


def _decode(ids: Any) -> str:
    return bytes(ids).decode("utf-8", errors="replace")


async def _sent(request: ChatRequest, tokens: bytes, reason: str, given: int) -> list[dict[str, Any]]:
    """Choices of the chunks of an answer whose tokens are bytes, and come one by one."""
    job = Job(PolicyVersion("policy@0", 0, ""), True, asyncio.Event())
    watcher = StopWatcher(request.stops, _decode) if request.stops else None
    generation = Generation(job, [1], 1000, 1.0, 1.0, 0, random.Random(0), watcher)
    job.generations.append(generation)
    generation.token_ids[:], generation.given, generation.ready = tokens[:given], given, given
    if watcher is not None:
        watcher.find(generation.token_ids)
    events = stream_answer(HEAD, request, job, _decode, chr)
    choices: list[dict[str, Any]] = []
    for place in range(given, len(tokens)):
        generation.token_ids.append(tokens[place])
        if watcher is not None:
            generation.text_end = watcher.find(generation.token_ids)
        if place + 1 == len(tokens):
            generation.finish_reason = reason
        generation.ready = place + 1
        job.news.set()
        choices += json.loads((await anext(events))[6:])["choices"]
    return choices


@pytest.mark.parametrize("parameters", [{}, {"tools": [{"type": "function", "function": {"name": "größe"}}]}])
@pytest.mark.parametrize("stop", [None, "🙂 é"])
def test_the_parts_of_a_stream_are_the_stream(parameters: dict[str, Any], stop: str | None) -> None:
    asked = parameters | ({"stop": stop} if stop else {})
    tokens = (SAID.partition(stop)[0] + stop if stop else SAID).encode()

    async def text_and_calls(cut: int) -> tuple[str, list[Any]]:
        first = await _sent(_request(**asked), tokens[:cut], INTERRUPTED, 0)
        text = "".join(choice["delta"]["content"] for choice in first)
        so_far = [{"token_ids": list(tokens[:cut]), "text_length": len(text), "is_over": False}]
        rest = await _sent(_request(**asked, answers_so_far=so_far), tokens, "stop", cut)
        calls = [call["function"] for choice in rest for call in choice["delta"].get("tool_calls", [])]
        assert not any("tool_calls" in choice["delta"] for choice in first)
        return text + "".join(choice["delta"]["content"] for choice in rest), calls

    whole = asyncio.run(_sent(_request(**asked), tokens, "stop", 0))
    expected = (
        "".join(choice["delta"]["content"] for choice in whole),
        [call["function"] for choice in whole for call in choice["delta"].get("tool_calls", [])],
    )
    assert expected[0] == (SAID.partition(stop)[0] if stop else SAID.partition("<tool")[0] if parameters else SAID)
    assert bool(expected[1]) is (bool(parameters) and not stop)
    for cut in range(1, len(tokens)):
        assert asyncio.run(text_and_calls(cut)) == expected, f"interrupted after byte {cut}"


@pytest.mark.parametrize(
    "so_far",
    [
        "no list",
        [{"token_ids": [5]}],
        [{"token_ids": ["a"], "text_length": 1, "is_over": False}],
        [{"token_ids": [5], "text_length": 1, "is_over": False}] * 2,
        [{"token_ids": [MODEL_TOKENS], "text_length": 1, "is_over": False}],
    ],
)
def test_what_cannot_be_gone_on_with_is_refused(checkpoints: list[Path], tmp_path: Path, so_far: Any) -> None:
    answer = _asked(checkpoints[0], tmp_path, so_far)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "answers_so_far"


def test_tokens_that_only_the_model_has_are_gone_on_with(checkpoints: list[Path], tmp_path: Path) -> None:
    so_far = [{"token_ids": [MODEL_TOKENS - 1], "text_length": 0, "is_over": False}]
    answer = _asked(checkpoints[0], tmp_path, so_far)
    assert answer.json()["usage"]["completion_tokens"] > 1


def _asked(checkpoint: Path, folder: Path, so_far: Any) -> httpx.Response:
    versions = new_versions()
    versions.announce("policy@0", 0, str(checkpoint))
    versions.release(versions.load("policy@0"))
    settings = Settings.load(data_dir=folder)
    server = HttpServer(create_app(settings, versions), settings, name="policy", port=0, setting="")
    try:
        body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "answers_so_far": so_far}
        return httpx.post(f"{server.start()}/v1/chat/completions", json=body, timeout=60)
    finally:
        server.stop()
