"""A real vLLM that is given weights: each version counts once its log-probabilities show it. ``make test-vllm``."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import TrainingError
from lightstream.schemas.records import ResourcesRecord
from lightstream.trainers.run.model.tiny_model import make_tiny_model
from lightstream.trainers.servers.cpu import policy_server
from lightstream.trainers.servers.vllm import VllmServers
from tests.support.waiting import eventually
from tests.trainers.policy_server.memory import learn_by_heart
from tests.trainers.policy_server.support import reference_logprobs
from tests.trainers.policy_server.test_tool_calls import ANSWERS, TOOLS
from tests.trainers.vllm_servers.vllm import OPTIONS

pytestmark = pytest.mark.vllm

TOLERANCE = 2e-3


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("models")
    return [make_tiny_model(folder / f"step-{seed}", seed=seed) for seed in range(4)]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return Settings.load(data_dir=tmp_path_factory.mktemp("data"), policy_port=0)


@pytest.fixture(scope="module")
def servers(settings: Settings, models: list[Path]) -> Iterator[VllmServers]:
    with VllmServers(settings, OPTIONS) as servers:
        servers.load(version(0, models[0]))
        yield servers


def version(number: int, folder: Path) -> ResourcesRecord:
    return ResourcesRecord(
        resources_id=f"run-{number}",
        version=number,
        run_id="run",
        checkpoint_url=str(folder),
        model=f"policy@{number}",
        created_unix_nano=1,
    )


def ask(servers: VllmServers, model: str = "policy", **parameters: Any) -> httpx.Response:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 8,
        "logprobs": True,
        "return_token_ids": True,
    }
    return httpx.post(f"{servers.url}/v1/chat/completions", json=body | parameters, timeout=300)


def assert_sampled_by(answer: httpx.Response, number: int, folder: Path) -> None:
    """The answer names this version, and its log-probabilities are this version's."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-lightstream-policy-version"] == str(number)
    body = answer.json()
    (choice,) = body["choices"]
    said = [entry["logprob"] for entry in choice["logprobs"]["content"]]
    expected = reference_logprobs(folder, body["prompt_token_ids"], choice["token_ids"])
    assert said == pytest.approx(expected.tolist(), abs=TOLERANCE)


def test_each_version_is_served_when_load_returns(servers: VllmServers, models: list[Path]) -> None:
    assert_sampled_by(ask(servers, "policy@0"), 0, models[0])
    seconds = servers.load(version(1, models[1]))
    assert seconds > 0
    assert servers.version() == 1
    assert_sampled_by(ask(servers, "policy@1"), 1, models[1])
    assert_sampled_by(ask(servers, "policy@0"), 1, models[1])
    assert servers.load(version(1, models[1])) < seconds, "nothing was loaded again"
    client = openai.OpenAI(base_url=f"{servers.url}/v1", api_key="none")
    assert [model.id for model in client.models.list()] == ["policy", "policy@1"]
    assert ask(servers, "policy@9").status_code == 404


def test_calls_in_progress_end_with_the_version_that_began_them(servers: VllmServers, models: list[Path]) -> None:
    """Calls without a pause, over several exchanges: none fails, and none is of two versions."""
    servers.load(version(2, models[2]))
    by_number = {2: models[2], 3: models[3], 4: models[0]}
    stop = threading.Event()

    def call_on() -> list[httpx.Response]:
        answers: list[httpx.Response] = []
        while not stop.is_set():
            answers.append(ask(servers, max_tokens=40))
        return answers

    with ThreadPoolExecutor(4) as pool:
        callers = [pool.submit(call_on) for _ in range(4)]
        eventually(lambda: servers.server.gate.inside > 0, what="calls in progress")
        for number in (3, 4):
            servers.load(version(number, by_number[number]))
        stop.set()
        answers = [answer for caller in callers for answer in caller.result()]
    assert len(answers) >= 4
    for answer in answers:
        number = int(answer.headers["x-lightstream-policy-version"])
        assert_sampled_by(answer, number, by_number[number])


def test_a_stream_names_its_version_and_keeps_an_exchange_waiting(servers: VllmServers, models: list[Path]) -> None:
    servers.load(version(5, models[1]))
    body = {"model": "policy", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 60, "stream": True}
    with httpx.stream("POST", f"{servers.url}/v1/chat/completions", json=body, timeout=300) as answer:
        assert answer.headers["x-lightstream-policy-version"] == "5"
        assert "data: [DONE]" in list(answer.iter_lines())
    eventually(lambda: servers.server.gate.inside == 0, what="the stream has left the gate")


def test_weights_that_do_not_fit_are_refused_and_what_was_served_is_served_again(
    servers: VllmServers, models: list[Path], tmp_path: Path
) -> None:
    servers.load(version(6, models[2]))
    other = make_tiny_model(tmp_path / "larger", hidden_size=96)
    with pytest.raises(TrainingError, match="refuses /collective_rpc"):
        servers.load(version(7, other))
    assert servers.version() == 6
    assert_sampled_by(ask(servers), 6, models[2])
    with pytest.raises(TrainingError, match="is not a checkpoint"):
        servers.load(version(7, tmp_path / "nowhere"))
    assert_sampled_by(ask(servers), 6, models[2])


def test_old_weights_after_a_success_are_noticed(servers: VllmServers, models: list[Path], tmp_path: Path) -> None:
    """A file that differs in what does not matter: vLLM says that it has read it, and nothing has changed."""
    servers.load(version(8, models[2]))
    same = make_tiny_model(tmp_path / "same", seed=2)
    file = same / "model.safetensors"
    save_file(load_file(file), file, metadata={"format": "pt", "note": "the same weights"})
    with pytest.raises(TrainingError, match=r"still gives the log-probabilities of policy@8"):
        servers.load(version(9, same))
    assert servers.version() == 8
    assert_sampled_by(ask(servers), 8, models[2])


def test_vllm_that_dies_comes_back_with_the_weights_of_the_moment(servers: VllmServers, models: list[Path]) -> None:
    servers.load(version(10, models[3]))
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(ask, servers, max_tokens=300)
        eventually(lambda: servers.server.gate.inside == 1, what="a call in progress")
        kill(servers)
        assert_sampled_by(call.result(), 10, models[3])
    kill(servers)
    servers.load(version(11, models[0]))
    assert_sampled_by(ask(servers), 11, models[0])


def test_tools_are_answered_as_by_the_policy_server(servers: VllmServers, tmp_path: Path) -> None:
    """The same weights, the same questions: the same message, whole and streamed."""
    model = learn_by_heart(tmp_path / "model", ANSWERS, TOOLS)
    servers.load(version(12, model))
    ours = policy_server(Settings.load(data_dir=tmp_path, policy_port=0), checkpoint=model, follows_resources=False)
    ours.start()
    for text in ANSWERS:
        body = {
            "model": "policy",
            "messages": [{"role": "user", "content": text}],
            "tools": TOOLS,
            "temperature": 0,
            "max_tokens": 200,
        }
        said: list[Any] = []
        for url in (servers.url, ours.url):
            client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
            arguments: Any = body
            choice = client.chat.completions.create(**arguments).choices[0]
            calls = choice.message.tool_calls or []
            whole = (choice.message.content, [(c.type, c.function.name, c.function.arguments) for c in calls])
            pieces = [c for chunk in client.chat.completions.create(**arguments, stream=True) for c in chunk.choices]
            deltas: list[Any] = [call for piece in pieces for call in piece.delta.tool_calls or []]
            streamed: dict[int, list[str]] = {}
            for delta in deltas:
                streamed.setdefault(delta.index, ["", ""])[0] += delta.function.name or ""
                streamed[delta.index][1] += delta.function.arguments or ""
            content = "".join(piece.delta.content or "" for piece in pieces)
            ends = (choice.finish_reason, pieces[-1].finish_reason)
            # vLLM's stream has no more of a call that is no JSON than it could make of it so far, and loses the
            # beginning of a tag at the end of the text.
            said.append((whole, ends[0], None if text in ("broken", "none") else (content, streamed, ends[1])))
        assert said[0] == said[1], text
    ours.stop()


def test_adapters_are_served_under_a_name_of_each_version(
    settings: Settings, models: list[Path], tmp_path: Path
) -> None:
    """Two versions at once, on one model; both are there again after vLLM died."""
    adapters = [_adapter(models[0], tmp_path / f"adapter-{seed}", seed) for seed in (1, 2, 3)]
    options = replace(OPTIONS, arguments=(*OPTIONS.arguments, "--enable-lora", "--max-lora-rank", "8"), adapters_kept=2)
    with VllmServers(Settings.load(data_dir=tmp_path, policy_port=0), options) as servers:
        servers.load(version(0, models[0]))
        for number, (folder, _merged) in enumerate(adapters, 1):
            servers.load(version(number, folder))
        assert_sampled_by(ask(servers, "policy@3"), 3, adapters[2][1])
        assert_sampled_by(ask(servers, "policy@2"), 2, adapters[1][1])
        assert_sampled_by(ask(servers), 3, adapters[2][1])
        assert ask(servers, "policy@9").status_code == 404
        kill(servers)
        servers.server.make_ready()
        assert_sampled_by(ask(servers, "policy@3"), 3, adapters[2][1])
        assert_sampled_by(ask(servers, "policy@2"), 2, adapters[1][1])


def _adapter(model: Path, folder: Path, seed: int) -> tuple[Path, Path]:
    """An adapter of that model, and the model with it merged in."""
    from peft import LoraConfig, get_peft_model

    load: Any = AutoModelForCausalLM.from_pretrained
    wanted: Any = get_peft_model(load(model), LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"]))
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        for name, parameter in wanted.named_parameters():
            if "lora_" in name:
                parameter.normal_(0.0, 0.2)
    wanted.save_pretrained(folder)
    merged = make_tiny_model(folder / "merged")
    wanted.merge_and_unload().save_pretrained(merged)
    return folder, merged


def kill(servers: VllmServers) -> None:
    pid = servers.server.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
