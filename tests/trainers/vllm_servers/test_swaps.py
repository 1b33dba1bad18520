"""Other weights in the middle of answers, at a stand-in for vLLM: which token which version sampled, and one answer."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from safetensors.torch import load_file, save_file

from lightstream.producers.llm_proxy import llm_proxy
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import TrainingError
from lightstream.schemas.packing import unpack_float32
from lightstream.schemas.records import ResourcesRecord
from lightstream.trainers.servers.vllm import VllmServers
from tests.producers.support import read_spans
from tests.support.waiting import eventually
from tests.trainers.policy_server.test_tool_calls import TOOLS
from tests.trainers.vllm_servers.stand_in import (
    FATAL_FILE,
    IGNORED_FILE,
    REFUSED_FILE,
    allow,
    marked_model,
    marker_of,
    stand_in_options,
)

SAID = "Grüße 🙂, "


class Serving:
    """The front before a stand-in."""

    def __init__(self, folder: Path, swap: str, stack: ExitStack) -> None:
        self._folder = folder
        self._folders = count()
        self.settings = Settings.load(data_dir=folder / "data", policy_port=0, policy_swap=swap)
        tools = ("--enable-auto-tool-choice", "--tool-call-parser=hermes")
        self.servers = stack.enter_context(VllmServers(self.settings, stand_in_options(folder, *tools)))
        self.pool = stack.enter_context(ThreadPoolExecutor(8))
        self.publish()

    def publish(self, problem: str = "") -> None:
        """Have the next version served."""
        served = self.servers.version()
        number = 0 if served is None else served + 1
        self.serve(marked_model(self._folder / f"step-{next(self._folders)}", number, problem=problem), number)

    def serve(self, folder: Path, number: int) -> None:
        """Have the weights of a folder served as this version."""
        name = f"policy@{number}"
        made = ResourcesRecord(
            resources_id=name,
            version=number,
            run_id="run",
            checkpoint_url=str(folder),
            model=name,
            created_unix_nano=1,
        )
        self.servers.load(made)

    @property
    def number(self) -> int:
        """The version that is served."""
        number = self.servers.version()
        assert number is not None
        return number

    def allow(self, tokens: int) -> None:
        allow(self.servers.server.url, tokens)

    def ask(self, said: str = SAID, **parameters: Any) -> Future[httpx.Response]:
        """A whole answer, in a thread."""
        body = self.body(said, **parameters)
        return self.pool.submit(httpx.post, f"{self.servers.url}/v1/chat/completions", json=body, timeout=120)

    def body(self, said: str = SAID, **parameters: Any) -> dict[str, Any]:
        messages = [{"role": "user", "content": said}]
        wanted = {"model": "policy", "max_tokens": 40, "logprobs": True, "return_token_ids": True}
        return {"messages": messages} | wanted | parameters

    def sampled(self) -> list[int]:
        """How many tokens each choice under way has."""
        answers = self.servers.server.under_way
        assert answers is not None
        return sorted(answers.tokens)

    def wait_for(self, *sampled: int) -> None:
        eventually(lambda: self.sampled() == sorted(sampled), timeout_s=120, what=f"{sampled} tokens are sampled")


@pytest.fixture(scope="module", params=["keep", "continue"])
def started(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with ExitStack() as stack:
        yield Serving(tmp_path_factory.mktemp(request.param), request.param, stack)


@pytest.fixture
def serving(started: Serving) -> Serving:
    """It samples nothing yet."""
    started.allow(0)
    return started


def runs_of(choice: dict[str, Any], header: int) -> list[tuple[int, int]]:
    """The versions that the answer claims: from which token on which."""
    runs = [(run["first_token"], run["policy_version"]) for run in choice.get("policy_version_runs", [])]
    return runs if runs and runs[0][0] == 0 else [(0, header), *runs]


def markers_of(logprobs: list[float]) -> list[tuple[int, int]]:
    """The versions as they were: from which token on which version sampled."""
    markers = [marker_of(logprob) for logprob in logprobs]
    return [(place, m) for place, m in enumerate(markers) if place == 0 or markers[place - 1] != m]


def said_again(said: str, tokens: int) -> str:
    repeated = (said.encode() * tokens)[:tokens]
    return repeated.decode("utf-8", errors="replace")


def check(answer: httpx.Response, said: str, tokens: int, runs: list[tuple[int, int]]) -> None:
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-lightstream-policy-version"] == str(runs[0][1])
    body = answer.json()
    for choice in body["choices"]:
        logprobs = [entry["logprob"] for entry in choice["logprobs"]["content"]]
        assert len(choice["token_ids"]) == len(logprobs) == tokens
        assert markers_of(logprobs) == runs_of(choice, runs[0][1]) == runs
        assert choice["message"]["content"] == said_again(said, tokens)
        assert choice["finish_reason"] == "length"
    assert body["usage"]["completion_tokens"] == tokens * len(body["choices"])


def test_whole_answers_have_tokens_of_several_versions(serving: Serving) -> None:
    """Two choices, and another call of another length."""
    first = serving.number
    serving.allow(9)  # in the middle of a character of four bytes
    calls = [serving.ask(n=2), serving.ask(said="abc", max_tokens=12, seed=1)]
    serving.wait_for(9, 9, 9)
    serving.publish()
    serving.allow(11)
    serving.wait_for(11, 11, 11)
    serving.publish()
    serving.allow(100)
    check(calls[0].result(), SAID, 40, [(0, first), (9, first + 1), (11, first + 2)])
    check(calls[1].result(), "abc", 12, [(0, first), (9, first + 1), (11, first + 2)])
    check(serving.ask(said="abc", max_tokens=3).result(), "abc", 3, [(0, first + 2)])


def test_a_streamed_answer_is_one_stream(serving: Serving) -> None:
    first = serving.number
    serving.allow(9)
    body = serving.body(stream=True, stream_options={"include_usage": True})
    chunks: list[Any] = []
    with httpx.stream("POST", f"{serving.servers.url}/v1/chat/completions", json=body, timeout=120) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                chunks.append(json.loads(line[6:]))
            if sum(len(choice["token_ids"]) for chunk in chunks for choice in chunk["choices"]) == 9:
                if serving.number == first:
                    serving.publish()
                serving.allow(100)
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    assert "".join(choice["delta"]["content"] for choice in choices) == said_again(SAID, 40)
    logprobs = [entry["logprob"] for choice in choices for entry in choice["logprobs"]["content"]]
    runs = [run for choice in choices for run in choice.get("policy_version_runs", [])]
    assert runs == [{"first_token": 9, "policy_version": first + 1}]
    assert markers_of(logprobs) == [(0, first), (9, serving.number)]
    assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["length"]
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert chunks[-1]["usage"]["completion_tokens"] == 40


@pytest.mark.parametrize("streams", [False, True])
def test_the_proxy_records_the_version_of_each_token(settings: Settings, serving: Serving, streams: bool) -> None:
    """It has nothing to go on with, and the agent sees none of it."""
    first = serving.number
    proxy = llm_proxy(settings.model_copy(update={"llm_upstream_url": f"{serving.servers.url}/v1"}))
    agent = openai.OpenAI(base_url=f"{proxy.start()}/rollout/r/attempt/a/v1", api_key="none", max_retries=0)
    serving.allow(9)
    messages: Any = [{"role": "user", "content": SAID}]
    asked: dict[str, Any] = {"model": "policy@0", "messages": messages, "max_tokens": 40, "stream": streams}

    def ask() -> str:
        answer: Any = agent.chat.completions.create(**asked)
        if streams:
            return "".join(chunk.choices[0].delta.content or "" for chunk in answer)
        assert "policy_version_runs" not in answer.choices[0].model_extra
        return str(answer.choices[0].message.content)

    call = serving.pool.submit(ask)
    serving.wait_for(9)
    serving.publish()
    serving.allow(100)
    assert call.result() == said_again(SAID, 40)
    proxy.stop()
    (record,) = read_spans(settings)
    recorded = record.llm_call
    assert recorded is not None
    assert [(run.first_token, run.policy_version) for run in recorded.policy_version_runs] == [
        (0, first),
        (9, serving.number),
    ]
    assert markers_of(list(unpack_float32(recorded.response_logprobs or b""))) == [(0, first), (9, serving.number)]


def test_stop_texts_and_calls_of_tools_are_of_the_whole(serving: Serving) -> None:
    first = serving.number
    call = '<tool_call>{"name": "count", "arguments": {"a": 1}}</tool_call>'
    serving.allow(9)
    calls = [
        serving.ask(said="0123456789", stop="89"),
        serving.ask(said=call, tools=TOOLS, max_tokens=len(call)),
    ]
    serving.wait_for(9, 9)
    serving.publish()
    serving.allow(100)
    (choice,) = calls[0].result().json()["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("01234567", "stop")
    assert len(choice["token_ids"]) == 10
    (choice,) = calls[1].result().json()["choices"]
    (made,) = choice["message"]["tool_calls"]
    assert (made["function"]["name"], json.loads(made["function"]["arguments"])) == ("count", {"a": 1})
    assert (choice["message"]["content"], choice["finish_reason"]) == (None, "tool_calls")
    assert runs_of(choice, first) == [(0, first), (9, serving.number)]


def test_completions_of_text_and_of_token_ids_go_on_too(serving: Serving) -> None:
    first = serving.number
    serving.allow(4)
    body = {"model": "policy@0", "prompt": ["ab", [2, 67, 68]], "max_tokens": 6, "logprobs": 1}
    body["return_token_ids"] = True
    call = serving.pool.submit(httpx.post, f"{serving.servers.url}/v1/completions", json=body, timeout=120)
    serving.wait_for(4, 4)
    serving.publish()
    serving.allow(100)
    choices = call.result().json()["choices"]
    assert choices[0]["text"] == "ababab"
    assert choices[1]["token_ids"] == [67, 68] * 3
    for choice in choices:
        assert (
            markers_of(choice["logprobs"]["token_logprobs"])
            == runs_of(choice, first)
            == [(0, first), (4, serving.number)]
        )


@pytest.mark.parametrize("only_vllm", [{"response_format": {"type": "json_object"}}, {"min_tokens": 3}, {"top_k": 5}])
def test_what_only_vllm_can_answer_is_finished_first(serving: Serving, only_vllm: dict[str, Any]) -> None:
    first = serving.number
    call = serving.ask(**only_vllm)
    eventually(lambda: serving.servers.server.gate.inside == 1, timeout_s=120, what="the call is under way")
    publishing = serving.pool.submit(serving.publish)
    eventually(lambda: serving.servers.server.gate.is_closed, timeout_s=120, what="the exchange waits")
    assert not publishing.done()
    serving.allow(1)
    assert call.result().json()["choices"][0]["message"]["content"] == f"by {first}"
    assert call.result().headers["x-lightstream-policy-version"] == str(first)
    publishing.result()
    assert serving.number == first + 1


def test_vllm_that_ends_while_it_reads_weights_goes_on_with_the_new_ones(serving: Serving) -> None:
    first = serving.number
    serving.allow(9)
    call = serving.ask()
    serving.wait_for(9)
    serving.publish(FATAL_FILE)
    serving.allow(100)
    check(call.result(), SAID, 40, [(0, first), (9, serving.number)])


def test_vllm_that_ends_while_it_answers_goes_on_where_it_was(serving: Serving) -> None:
    first = serving.number
    serving.allow(9)
    call = serving.ask()
    serving.wait_for(9)
    pid = serving.servers.server.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    serving.servers.server.make_ready()
    serving.allow(100)
    check(call.result(), SAID, 40, [(0, first)])


@pytest.mark.parametrize(
    ("problem", "message"), [(REFUSED_FILE, "these weights do not fit"), (IGNORED_FILE, "still gives the log-prob")]
)
def test_after_weights_that_are_not_taken_answers_go_on_with_those_before(
    serving: Serving, problem: str, message: str
) -> None:
    """Of what was sampled before vLLM was found to have the old weights still, nothing is taken for the new version."""
    first = serving.number
    serving.allow(9)
    call = serving.ask()
    serving.wait_for(9)
    with pytest.raises(TrainingError, match=message):
        serving.publish(problem)
    serving.allow(100)
    check(call.result(), SAID, 40, [(0, first)])


def test_equal_weights_in_two_steps_are_no_failed_update(serving: Serving, tmp_path: Path) -> None:
    """An update that changes nothing, as one at a rate of 0, and is stored in another type than the version before."""
    before = serving.number
    pid = serving.servers.server.pid
    folder = marked_model(tmp_path / "equal", before)
    narrow = {name: tensor.bfloat16() for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(narrow, folder / "model.safetensors")
    serving.serve(folder, before + 1)
    assert (serving.number, serving.servers.server.pid) == (before + 1, pid)
    serving.allow(100)
    assert serving.ask(max_tokens=2).result().status_code == 200
    serving.publish()  # whose marker is its number again


def test_vllms_refusal_of_a_prompt_is_the_callers(serving: Serving) -> None:
    answer = serving.ask(said="x" * 5000).result()
    assert answer.status_code == 400
    assert "vLLM takes 4096 in all" in answer.json()["error"]["message"]


def test_another_run_s_model_is_refused_by_name(serving: Serving, tmp_path: Path) -> None:
    serving.allow(1000)
    number = serving.number
    assert serving.ask(model=f"policy@{number}", max_tokens=2).result().status_code == 200
    for name in ("other@0", f"other@{number + 1}", "other/policy@0"):
        refused = serving.ask(model=name).result()
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_refused")
        assert f"serves the model 'policy@{number}', of run 'run', and not '{name}'" in refused.text
        asked = httpx.get(f"{serving.servers.url}/v1/models/{name}", timeout=60)
        assert asked.json()["error"]["code"] == "model_refused"
    made = ResourcesRecord(
        resources_id="other-v0",
        version=0,
        run_id="other",
        checkpoint_url=str(marked_model(tmp_path / "other", 0)),
        model="other@0",
        created_unix_nano=1,
    )
    with pytest.raises(TrainingError, match=r"other@0 is of run 'other', and this vLLM serves the model of run 'run'"):
        serving.servers.load(made)
    assert serving.number == number
    for name in ("policy", f"run@{number}", "run/policy@0"):
        assert serving.ask(model=name, max_tokens=2).result().status_code == 200
