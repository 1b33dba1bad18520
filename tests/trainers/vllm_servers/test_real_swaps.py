"""A real vLLM that is given weights in the middle of answers, under ``keep`` and ``continue``. ``make test-vllm``."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from lightstream.runtime.settings import Settings
from lightstream.schemas.records import ResourcesRecord
from lightstream.trainers.servers.vllm import VllmServers
from lightstream.trainers.servers.vllm.client import VllmClient
from tests.support.waiting import eventually
from tests.trainers.policy_server.support import reference_logprobs, talkative_model
from tests.trainers.vllm_servers.vllm import OPTIONS

pytestmark = pytest.mark.vllm

TOLERANCE = 1e-4
LIMIT_S = 1500.0
"""vLLM starts in half a minute, or in ten on a busy machine."""

TOKENS = 300
LENGTHS = (3, 20)
"""Tokens that the shortest answer under way has when there are new weights."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Models whose answers have just as many tokens as are asked for."""
    folder = tmp_path_factory.mktemp("talkative")
    return [talkative_model(folder / str(seed), seed=seed) for seed in range(3)]


@dataclass
class Serving:
    """vLLM, and the versions that it has been given, made of these models in turn."""

    servers: VllmServers
    models: list[Path]
    number: int = -1

    def publish(self) -> None:
        self.number += 1
        name = f"policy@{self.number}"
        folder = self.folder(self.number)
        self.servers.load(
            ResourcesRecord(
                resources_id=name,
                version=self.number,
                run_id="run",
                checkpoint_url=str(folder),
                model=name,
                created_unix_nano=1,
            )
        )

    def folder(self, number: int) -> Path:
        return self.models[number % len(self.models)]

    def ask(self, **parameters: Any) -> dict[str, Any]:
        """An answer: a streamed one has the parts of each choice put together."""
        wanted: dict[str, Any] = {"model": "policy", "max_tokens": TOKENS, "logprobs": True, "return_token_ids": True}
        body = {"messages": [{"role": "user", "content": "hi"}]} | wanted | parameters
        url = f"{self.servers.url}/v1/chat/completions"
        if not body.get("stream"):
            answer = httpx.post(url, json=body, timeout=LIMIT_S)
            assert answer.status_code == 200, answer.text
            return {**answer.json(), "header": int(answer.headers["x-lightstream-policy-version"])}
        with httpx.stream("POST", url, json=body, timeout=LIMIT_S) as streamed:
            header = int(streamed.headers["x-lightstream-policy-version"])
            chunks = [json.loads(line[6:]) for line in streamed.iter_lines() if line.startswith("data: {")]
        choices: dict[int, Any] = {}
        for piece in (choice for chunk in chunks for choice in chunk["choices"]):
            whole = choices.setdefault(
                piece["index"],
                {"token_ids": [], "logprobs": {"content": []}, "policy_version_runs": [], "message": {"content": ""}},
            )
            whole["token_ids"] += piece["token_ids"]
            whole["logprobs"]["content"] += piece["logprobs"]["content"]
            whole["policy_version_runs"] += piece.get("policy_version_runs", [])
            whole["message"]["content"] += piece["delta"]["content"]
            whole["finish_reason"] = piece["finish_reason"]
        prompt = next(chunk["prompt_token_ids"] for chunk in chunks if "prompt_token_ids" in chunk)
        return {"choices": list(choices.values()), "prompt_token_ids": prompt, "header": header}

    def tokens(self) -> list[int]:
        """How many each choice under way has."""
        answers = self.servers.server.under_way
        assert answers is not None
        return answers.tokens

    def wait_for(self, choices: int, tokens: int) -> None:
        eventually(
            lambda: len(self.tokens()) == choices and min(self.tokens()) >= tokens,
            timeout_s=LIMIT_S,
            what=f"{choices} choices have {tokens} tokens",
        )

    def check(self, answer: dict[str, Any], versions: list[int], tokens: int = TOKENS) -> None:
        """Each token is as likely as its own version says; the answer is whole, and names these versions."""
        for choice in answer["choices"]:
            claimed = choice.get("policy_version_runs") or [{"first_token": 0, "policy_version": answer["header"]}]
            runs = [(run["first_token"], run["policy_version"]) for run in claimed]
            if runs[0][0]:
                runs.insert(0, (0, answer["header"]))
            assert [version for _, version in runs] == versions
            ids, said = choice["token_ids"], [entry["logprob"] for entry in choice["logprobs"]["content"]]
            assert len(ids) == len(said) == tokens
            assert len(choice["message"]["content"]) == tokens, "every token is one character"
            assert choice["finish_reason"] == "length"
            ends = [*(first for first, _ in runs[1:]), tokens]
            for (first, version), end in zip(runs, ends, strict=True):
                expected = reference_logprobs(self.folder(version), answer["prompt_token_ids"], ids)[first:end]
                assert said[first:end] == pytest.approx(expected.tolist(), abs=TOLERANCE)


@pytest.fixture(scope="module", params=["keep", "continue"])
def serving(
    request: pytest.FixtureRequest, models: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Serving]:
    settings = Settings.load(data_dir=tmp_path_factory.mktemp("data"), policy_port=0, policy_swap=request.param)
    with VllmServers(settings, OPTIONS) as servers:
        serving = Serving(servers, models)
        serving.publish()
        yield serving


@pytest.fixture
def begin() -> Iterator[Callable[..., Future[Any]]]:
    with ThreadPoolExecutor(8) as pool:
        yield pool.submit


@pytest.mark.parametrize("length", LENGTHS)
def test_each_token_is_of_the_version_that_the_answer_says(
    serving: Serving, begin: Callable[..., Future[Any]], length: int
) -> None:
    """Six calls at once, whole and streamed, with a seed and without, and two exchanges of weights."""
    first = serving.number
    asked: list[dict[str, Any]] = [{}, {"n": 2}, {"seed": 5}, {"stream": True}, {"stream": True, "n": 2}, {"seed": 7}]
    calls = [begin(serving.ask, **parameters) for parameters in asked]
    serving.wait_for(8, length)
    serving.publish()
    serving.wait_for(8, length)  # of each, the next part has begun
    serving.wait_for(8, max(serving.tokens()) + length)
    serving.publish()
    for call in calls:
        serving.check(call.result(), [first, first + 1, first + 2])
    serving.check(serving.ask(max_tokens=5), [first + 2], 5)


def test_vllm_that_ends_in_an_exchange_goes_on_with_the_new_weights(
    serving: Serving, begin: Callable[..., Future[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = serving.number
    calls = [begin(serving.ask, stream=streams) for streams in (False, True)]
    serving.wait_for(2, 10)
    load_weights = VllmClient.load_weights

    def die(client: VllmClient, folder: Path, version: int) -> None:
        kill(serving)
        load_weights(client, folder, version)

    with monkeypatch.context() as patched:
        patched.setattr(VllmClient, "load_weights", die)
        serving.publish()
    for call in calls:
        serving.check(call.result(), [first, first + 1])


def test_vllm_that_ends_while_it_answers_goes_on_where_it_was(
    serving: Serving, begin: Callable[..., Future[Any]]
) -> None:
    calls = [begin(serving.ask, stream=streams) for streams in (False, True)]
    serving.wait_for(2, 10)
    kill(serving)
    for call in calls:
        serving.check(call.result(), [serving.number])


def test_an_answer_in_a_forced_format_is_finished_before(serving: Serving, begin: Callable[..., Future[Any]]) -> None:
    first = serving.number
    call = begin(serving.ask, response_format={"type": "json_object"}, max_tokens=100)
    eventually(lambda: serving.servers.server.gate.inside == 1, timeout_s=LIMIT_S, what="it is under way")
    serving.publish()
    answer = call.result()
    (choice,) = answer["choices"]
    assert answer["header"] == first
    assert choice["message"]["content"].lstrip().startswith("{")
    assert "policy_version_runs" not in choice


def kill(serving: Serving) -> None:
    pid = serving.servers.server.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
