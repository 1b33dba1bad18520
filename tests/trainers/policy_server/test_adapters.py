"""Adapters on one model: each answers by its own name, as peft computes it, and the model is in memory once."""

from __future__ import annotations

import json
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import openai
import pytest
import torch
from confluent_kafka import Producer
from peft import PeftModel

from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.kafka import producer_config
from lightstream.runtime.settings import Settings
from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import TrainingError
from lightstream.schemas.records import ResourcesRecord
from lightstream.schemas.topics import RESOURCES
from lightstream.trainers import VERL, AgentPolicy, make_tiny_model
from lightstream.trainers.engines.verl.initial import write_initial_model
from lightstream.trainers.run.checkpoint.adapter import AdapterShape, read_adapter, write_adapter
from lightstream.trainers.servers.cpu import policy_server
from lightstream.trainers.servers.cpu.adapters import AdaptedModel
from lightstream.trainers.servers.cpu.checkpoint import load_model
from lightstream.trainers.servers.cpu.policy_version import Versions
from tests.support.waiting import eventually
from tests.trainers.policy_server.support import CPU, new_versions

POLICIES = {"planner": AgentPolicy(lora_rank=4), "solver": AgentPolicy(lora_rank=2, lora_alpha=8)}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's first version, of which each adapter adds something."""
    folder = tmp_path_factory.mktemp("run")
    model = make_tiny_model(folder / "model")
    (folder / "v0").mkdir()
    write_initial_model(VERL(model=model, steps=1, policies=POLICIES), folder / "v0", seed=0)
    for name in POLICIES:
        changed(folder / "v0" / name, folder / "v0" / name, base="..", seed=len(name))
    return folder / "v0"


def changed(adapter: Path, folder: Path, *, base: str, seed: int) -> Path:
    """The adapter with other numbers."""
    chance = torch.Generator().manual_seed(seed)
    config = json.loads((adapter / "adapter_config.json").read_text())
    tensors = {n: 0.3 * torch.randn(t.shape, generator=chance) for n, t in read_adapter(adapter).items()}
    write_adapter(folder, tensors, AdapterShape(config["r"], config["lora_alpha"], base))
    return folder


@torch.inference_mode()
def logprobs_by_peft(base: Path, adapter: Path, prompt: list[int], response: list[int]) -> Any:
    model: Any = PeftModel.from_pretrained(load_model(base, CPU, torch.float32), str(adapter))
    logits = model(input_ids=torch.tensor([[*prompt, *response]])).logits[0, len(prompt) - 1 : -1]
    return torch.log_softmax(logits, -1).gather(-1, torch.tensor(response)[:, None])[:, 0].float()


class Announcer:
    """Writes versions as a trainer does."""

    def __init__(self, settings: Settings, first: Path) -> None:
        self._topic = RESOURCES.full_name(settings.topic_prefix)
        self._producer = Producer(producer_config(settings))
        self._first = first

    def announce(self, version: int, adapters: dict[str, Path]) -> None:
        record = ResourcesRecord(
            resources_id=f"run-v{version}",
            version=version,
            run_id="run",
            model="policy@0" if version == 0 else None,
            checkpoint_url=str(self._first),
            adapters={name: str(folder) for name, folder in adapters.items()},
            created_unix_nano=time.time_ns(),
        )
        self._producer.produce(self._topic, Codec().encode(record), key=record.resources_id)
        assert self._producer.flush(300) == 0


@pytest.fixture
def server(settings: Settings) -> Generator[HttpServer]:
    server = policy_server(settings)
    server.start()
    yield server
    server.stop()


def test_each_name_answers_with_its_own_adapter(
    settings: Settings, server: HttpServer, first: Path, tmp_path: Path
) -> None:
    later = changed(first / "planner", tmp_path / "planner", base=str(first), seed=17)
    announcer = Announcer(settings, first)
    announcer.announce(0, {"planner@0": first / "planner", "solver@0": first / "solver"})
    announcer.announce(1, {"planner@1": later, "solver@0": first / "solver"})
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    eventually(lambda: {"planner@1", "solver@0"} <= {model.id for model in client.models.list()})
    folders = {"planner@0": first / "planner", "planner@1": later, "solver@0": first / "solver"}
    answers = {
        name: client.chat.completions.create(
            model=name,
            messages=[{"role": "user", "content": "hi"}],
            max_tokens=5,
            seed=3,
            logprobs=True,
            extra_body={"return_token_ids": True},
        )
        for name in ("planner@1", "solver@0", "planner@0", "policy@0", "solver@0")
    }
    for name, folder in folders.items():
        answer: Any = answers[name]
        assert answer.model == name
        choice = answer.choices[0]
        said = torch.tensor([entry.logprob for entry in choice.logprobs.content])
        expected = logprobs_by_peft(first, folder, answer.prompt_token_ids, choice.token_ids)
        assert torch.allclose(said, expected, atol=1e-4, rtol=0), name
    assert len({str(answer.choices) for answer in answers.values()}) == len(answers)


def test_the_model_is_in_memory_once_and_each_policy_keeps_its_newest_adapters(first: Path, tmp_path: Path) -> None:
    versions = new_versions(kept=2)
    versions.announce("policy@0", 0, str(first), "v0")
    for number in range(4):
        for name in POLICIES:
            folder = first / name if number == 0 else tmp_path / f"{name}-{number}"
            if number:
                changed(first / name, folder, base=str(first), seed=number)
            versions.announce(f"{name}@{number}", number, str(folder), f"v{number}")
    for number in range(4):
        for name in POLICIES:
            versions.release(versions.load(f"{name}@{number}"))
    held = versions.load("policy@0")
    assert versions.names() == ["policy", "solver@3", "planner@3", "solver@2", "planner@2", "policy@0"]
    models = [versions.load(name).model for name in versions.names()[1:]]
    assert all(isinstance(model, AdaptedModel) for model in models)
    assert len({id(model.shared.model) for model in models}) == 1
    assert held.model.matrices == {}


def test_an_adapter_that_cannot_be_served_is_refused_and_harms_no_other(first: Path, tmp_path: Path) -> None:
    versions = Versions(CPU, torch.float32, 2, rank_max=3)
    versions.announce("planner@0", 0, str(first / "planner"))
    with pytest.raises(TrainingError, match=r"has the rank 4; this server allows 3"):
        versions.load("planner@0")
    homeless = changed(first / "solver", tmp_path / "homeless", base="../nowhere", seed=1)
    other = make_tiny_model(tmp_path / "other", hidden_size=96)
    foreign = changed(first / "solver", tmp_path / "foreign", base=str(other), seed=1)
    for number, (folder, message) in enumerate(((homeless, "names the model"), (foreign, "does not fit its model"))):
        versions.announce(f"bad@{number}", number, str(folder))
        with pytest.raises(TrainingError, match=message):
            versions.load(f"bad@{number}")
    versions.announce("solver@0", 0, str(first / "solver"))
    assert versions.load("solver@0").is_adapter
