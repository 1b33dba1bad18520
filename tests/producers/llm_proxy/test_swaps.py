"""New weights while an answer is under way, through the proxy: one answer for the agent, each token by one version."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import openai
import pytest
import torch

from lightstream.producers.llm_proxy import llm_proxy
from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.settings import Settings
from lightstream.schemas.packing import unpack_float32, unpack_int32
from lightstream.schemas.records import LlmCall, SpanStatus
from lightstream.trainers.servers.cpu import create_app
from lightstream.trainers.servers.cpu.policy_version import Versions
from lightstream.trainers.servers.cpu.service import tokens_of
from tests.producers.support import read_spans
from tests.support.waiting import eventually
from tests.trainers.policy_server.support import CPU, reference_logprobs, sampled_tokens, talkative_model

TOKENS = 600
"""Far more than are made while a test says that there are new weights."""

TOLERANCE = 1e-4
SEED = 11
Messages: TypeAlias = list[dict[str, Any]]
HELLO: Messages = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Models whose answers have just as many tokens as are asked for."""
    folder = tmp_path_factory.mktemp("talkative")
    return [talkative_model(folder / str(seed), seed=seed) for seed in range(3)]


class Serving:
    """A proxy before a policy server that has every version in memory, and is told when one is the newest."""

    def __init__(self, settings: Settings, folders: list[Path], swap: str, stack: ExitStack) -> None:
        settings = settings.model_copy(update={"policy_swap": swap})
        self.folders = folders
        self.versions = Versions(CPU, torch.float32, len(folders), is_succeeded=swap != "drain")
        for number in reversed(range(len(folders))):  # so that 0 is the newest
            self.publish(number)
            self.versions.release(self.versions.load(f"policy@{number}"))
        self.server = HttpServer(create_app(settings, self.versions), settings, name="policy", port=0, setting="")
        self.policy_url = self.server.start()
        stack.callback(self.server.stop)
        proxy = llm_proxy(settings.model_copy(update={"llm_upstream_url": f"{self.policy_url}/v1"}))
        url = proxy.start()
        stack.callback(proxy.stop)
        self.agent = openai.OpenAI(base_url=f"{url}/rollout/r/attempt/a/v1", api_key="none", max_retries=0)

    def publish(self, number: int) -> None:
        self.versions.announce(f"policy@{number}", number, str(self.folders[number]))

    def publish_while_it_answers(self, number: int) -> None:
        eventually(lambda: httpx.get(f"{self.policy_url}/healthz", timeout=60).json()["running"] > 0)
        self.publish(number)

    def streamed(self, publish_at: dict[int, int], **parameters: Any) -> tuple[str, list[Any]]:
        """Text of a streamed chat answer, and its chunks; a version is published once so many have come."""
        arguments: dict[str, Any] = {"model": "policy@0", "messages": HELLO, "max_tokens": TOKENS, "seed": SEED}
        chunks: list[Any] = []
        for chunk in self.agent.chat.completions.create(**(arguments | parameters), stream=True):
            chunks.append(chunk)
            if len(chunks) in publish_at:
                self.publish(publish_at[len(chunks)])
        return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices), chunks

    def decode(self, ids: list[int]) -> str:
        held = self.versions.load("policy@0")
        text = tokens_of(held).tokenizer.decode(ids, skip_special_tokens=True)
        self.versions.release(held)
        return str(text)


@pytest.fixture
def serve(settings: Settings, folders: list[Path]) -> Iterator[Callable[[str], Serving]]:
    with ExitStack() as stack:
        yield lambda swap: Serving(settings, folders, swap, stack)


def _recorded(settings: Settings) -> LlmCall:
    (record,) = read_spans(settings)
    assert record.status is SpanStatus.OK
    assert record.llm_call is not None
    return record.llm_call


def _assert_exact(call: LlmCall, folders: list[Path], versions: list[int], draws: random.Random | None = None) -> None:
    """Every token is what its own version gives after all that is before it, and as likely as recorded."""
    prompt = list(unpack_int32(call.prompt_token_ids or b""))
    response = list(unpack_int32(call.response_token_ids or b""))
    logprobs = list(unpack_float32(call.response_logprobs or b""))
    runs = [(run.first_token, run.policy_version) for run in call.policy_version_runs]
    assert [version for _, version in runs] == versions
    assert call.policy_version == versions[0]
    ends = [*(first for first, _ in runs), len(response)]
    assert ends[0] == 0
    assert all(a < b for a, b in pairwise(ends))
    places = [folders[v] for (first, v), end in zip(runs, ends[1:], strict=True) for _ in range(first, end)]
    expected = [0.0] * len(response)
    for folder in set(places):
        for place, value in enumerate(reference_logprobs(folder, prompt, response).tolist()):
            if places[place] == folder:
                expected[place] = value
    assert logprobs == pytest.approx(expected, abs=TOLERANCE)
    draws = draws or random.Random(f"{SEED}:0")
    assert response == sampled_tokens(places, prompt, response, [draws.random() for _ in response])


@pytest.mark.parametrize("swap", ["keep", "continue"])
def test_a_streamed_answer_goes_on_with_each_new_version(
    settings: Settings, folders: list[Path], serve: Callable[[str], Serving], swap: str
) -> None:
    serving = serve(swap)
    text, chunks = serving.streamed({5: 1, 40: 2}, stream_options={"include_usage": True})
    call = _recorded(settings)
    _assert_exact(call, folders, [0, 1, 2])
    ids = list(unpack_int32(call.response_token_ids or b""))
    assert len(ids) == TOKENS
    assert text == serving.decode(ids)
    assert {(chunk.id, chunk.model) for chunk in chunks} == {(call.response_id, "policy@0")}
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["length"]
    assert [chunk.usage.completion_tokens for chunk in chunks if chunk.usage] == [TOKENS]


@pytest.mark.parametrize("swap", ["keep", "continue"])
def test_a_whole_answer_is_one_and_so_are_its_choices(
    settings: Settings, folders: list[Path], serve: Callable[[str], Serving], swap: str
) -> None:
    serving = serve(swap)
    answering = openai.AsyncOpenAI(base_url=serving.agent.base_url, api_key="none", max_retries=0)

    arguments: dict[str, Any] = {"model": "policy@0", "messages": HELLO, "max_tokens": TOKENS, "seed": SEED, "n": 2}
    arguments["logprobs"] = True

    async def ask() -> Any:
        asked = asyncio.create_task(answering.chat.completions.create(**arguments))
        await asyncio.to_thread(serving.publish_while_it_answers, 1)
        return await asked

    answer = asyncio.run(ask())
    records = sorted(read_spans(settings), key=lambda r: r.llm_call.choice_index if r.llm_call else -1)
    for record, choice in zip(records, answer.choices, strict=True):
        call = record.llm_call
        assert call is not None
        _assert_exact(call, folders, [0, 1], random.Random(f"{SEED}:{choice.index}"))
        ids = list(unpack_int32(call.response_token_ids or b""))
        assert choice.message.content == serving.decode(ids)
        assert choice.finish_reason == call.finish_reason == "length"
        seen = [entry.logprob for entry in choice.logprobs.content]
        assert seen == pytest.approx(list(unpack_float32(call.response_logprobs or b"")), abs=TOLERANCE)
        assert "policy_version_runs" not in (choice.model_extra or {})
        assert (answer.id, answer.usage.completion_tokens) == (call.response_id, 2 * TOKENS)


def test_without_a_swap_mode_the_version_that_began_an_answer_finishes_it(
    settings: Settings, folders: list[Path], serve: Callable[[str], Serving]
) -> None:
    serve("drain").streamed({5: 1})
    call = _recorded(settings)
    assert (call.policy_version, call.policy_version_runs) == (0, [])


@pytest.mark.parametrize("swap", ["keep", "continue"])
def test_calls_of_an_older_version_begin_with_the_newest(
    settings: Settings, serve: Callable[[str], Serving], swap: str
) -> None:
    serving = serve(swap)
    serving.publish(2)
    serving.streamed({}, max_tokens=3)
    call = _recorded(settings)
    assert (call.policy_version, call.response_model, call.policy_version_runs) == (2, "policy@2", [])


def test_a_stop_text_across_the_boundary_ends_the_answer(
    settings: Settings, serve: Callable[[str], Serving], folders: list[Path]
) -> None:
    serving = serve("continue")
    serving.streamed({5: 1})
    (run, after) = _recorded(settings).policy_version_runs
    ids = list(unpack_int32(_recorded(settings).response_token_ids or b""))
    text, boundary = serving.decode(ids), after.first_token
    stop = text[boundary - 2 : boundary + 2]
    assert run.first_token == 0
    assert text.index(stop) == boundary - 2, "it is said for the first time where the versions meet"
    so_far = [{"token_ids": ids[:boundary], "text_length": boundary - 3, "is_over": False}]
    body = {"model": "policy", "messages": HELLO, "max_tokens": TOKENS, "seed": SEED, "stop": stop, "logprobs": True}
    body |= {"return_token_ids": True, "answers_so_far": so_far}
    answer = httpx.post(f"{serving.policy_url}/v1/chat/completions", json=body, timeout=60).json()
    (choice,) = answer["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == (text[: boundary - 2], "stop")
    assert choice["token_ids"] == ids[boundary : boundary + 2]
    assert choice["policy_version_runs"] == [{"first_token": boundary, "policy_version": 1}]


def test_a_server_that_ends_between_the_versions_is_a_clear_error(
    settings: Settings, serve: Callable[[str], Serving]
) -> None:
    serving = serve("continue")
    arguments: dict[str, Any] = {"model": "policy@0", "messages": HELLO, "max_tokens": 30 * TOKENS, "stream": True}
    stream = serving.agent.chat.completions.create(**arguments)
    next(stream)
    serving.publish(1)
    serving.server.stop()
    with pytest.raises(openai.APIError, match="LLM server"):
        list(stream)
    (record,) = read_spans(settings)
    assert record.status is SpanStatus.ERROR
    assert "LLM server" in record.status_message
