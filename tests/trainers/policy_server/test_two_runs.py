"""Several runs on one policy server: each gets its own weights, tokenizer and end of turn, or a refusal."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import httpx
import pytest
import torch
from safetensors.torch import load_file

from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import TrainingError
from lightstream.trainers.servers.cpu import create_app
from lightstream.trainers.servers.cpu.policy_version import PolicyVersion, Versions
from tests.trainers.policy_server.support import new_versions, reference_logprobs

EMBEDDING = "model.embed_tokens.weight"


def _is_of(version: PolicyVersion, folder: Path) -> bool:
    weights = load_file(folder / "model.safetensors")[EMBEDDING]
    return torch.equal(version.model.state_dict()[EMBEDDING].float(), weights.float())


def _announce(versions: Versions, run_id: str, number: int, folder: Path, name: str = "") -> None:
    versions.announce(name or f"{run_id}@{number}", number, str(folder), f"{run_id}-v{number}", run_id=run_id)


def test_a_name_that_two_runs_published_is_neither_s(checkpoints: list[Path]) -> None:
    versions = new_versions()
    _announce(versions, "a", 1, checkpoints[0], "policy@1")
    assert _is_of(versions.load("policy@1"), checkpoints[0])
    _announce(versions, "b", 1, checkpoints[1], "policy@1")
    assert versions.acquire("policy@1") is None
    with pytest.raises(TrainingError, match=r"run 'a' and run 'b'.*ask for 'a/policy@1' or 'b/policy@1'"):
        versions.load("policy@1")
    assert _is_of(versions.load("a/policy@1"), checkpoints[0])
    assert _is_of(versions.load("b/policy@1"), checkpoints[1])
    assert versions.names() == ["policy", "b/policy@1", "a/policy@1"]


def test_a_run_publishes_its_own_version_again(checkpoints: list[Path]) -> None:
    versions = new_versions()
    _announce(versions, "a", 1, checkpoints[0], "policy@1")
    _announce(versions, "a", 1, checkpoints[1], "policy@1")
    assert _is_of(versions.load("policy@1"), checkpoints[1])


def test_a_published_version_takes_the_name_of_one_without_a_record(checkpoints: list[Path]) -> None:
    versions = new_versions()
    versions.announce("policy@0", 0, str(checkpoints[0]))
    versions.release(versions.load("policy@0"))
    _announce(versions, "a", 0, checkpoints[1], "policy@0")
    assert _is_of(versions.load("policy@0"), checkpoints[1])


def test_versions_that_were_not_asked_for_longest_are_given_up(checkpoints: list[Path]) -> None:
    versions = new_versions(kept=3)
    for number, run_id in enumerate("abcd"):
        _announce(versions, run_id, 1, checkpoints[number])
    for name in ("d@1", "a@1", "b@1", "a@1", "c@1"):
        versions.release(versions.load(name))
    assert versions.names() == ["policy", "d@1", "c@1", "a@1"]  # the newest, and those that were used last
    assert _is_of(versions.load("b@1"), checkpoints[1])


def test_calls_go_on_with_versions_of_their_own_run_alone(checkpoints: list[Path]) -> None:
    versions = new_versions()
    versions.is_succeeded = True
    _announce(versions, "a", 1, checkpoints[0], "shared@1")
    held = versions.load("shared@1")
    _announce(versions, "b", 2, checkpoints[1], "shared@2")
    versions.release(versions.load("shared@2"))
    assert versions.succeed(held) is None
    _announce(versions, "a", 3, checkpoints[2], "shared@3")
    versions.release(versions.load("shared@3"))
    newer = versions.succeed(held)
    assert newer is not None
    assert newer.name == "shared@3"


def test_tokenizer_and_end_of_turn_are_those_of_the_version(checkpoints: list[Path], tmp_path: Path) -> None:
    # The same architecture, so that the memory of one version's weights serves for the other's.
    other = shutil.copytree(checkpoints[1], tmp_path / "other")
    template = other / "chat_template.jinja"
    template.write_text("{% for m in messages %}{{ m['content'] }}{% endfor %}!", "utf-8")
    config = json.loads((other / "generation_config.json").read_text("utf-8"))
    (other / "generation_config.json").write_text(json.dumps(config | {"eos_token_id": [5, 6]}), "utf-8")
    versions = new_versions(kept=1)
    _announce(versions, "a", 1, checkpoints[0])
    _announce(versions, "b", 1, other)
    _announce(versions, "a", 2, checkpoints[2])
    _announce(versions, "c", 1, checkpoints[3])
    held = {}
    for name in ("a@1", "b@1", "a@2"):
        held[name] = versions.load(name)
        versions.release(held[name])
    assert held["a@1"].tokens is held["a@2"].tokens
    assert held["a@1"].end_ids == held["a@2"].end_ids
    assert held["b@1"].tokens is not held["a@1"].tokens
    assert {5, 6} <= held["b@1"].end_ids
    assert not {5, 6} & held["a@1"].end_ids
    settings = Settings.load(data_dir=tmp_path / "data", policy_version_wait_s=0.1)
    server = HttpServer(create_app(settings, versions), settings, name="policy")
    url = server.start()
    try:
        prompts = {name: _prompt(url, name) for name in ("a@1", "b@1", "a@2")}
    finally:
        server.stop()
    assert prompts["a@1"] == prompts["a@2"] != prompts["b@1"]


def _prompt(url: str, model: str) -> list[int]:
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1, "return_token_ids": True}
    answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60).raise_for_status().json()
    ids: list[int] = answer["prompt_token_ids"]
    return ids


def test_a_server_answers_each_run_with_its_weights_and_loads_what_is_asked_for(
    checkpoints: list[Path], tmp_path: Path
) -> None:
    versions = new_versions(kept=1)
    of_name = {"a@1": checkpoints[0], "b@1": checkpoints[1], "a@2": checkpoints[2]}
    for name, folder in of_name.items():
        _announce(versions, name[0], int(name[-1]), folder)
    gone = shutil.copytree(checkpoints[3], tmp_path / "gone")
    _announce(versions, "c", 1, gone)
    shutil.rmtree(gone)
    _announce(versions, "d", 1, checkpoints[3], "policy@1")
    _announce(versions, "e", 1, checkpoints[3], "policy@1")
    settings = Settings.load(data_dir=tmp_path / "data", policy_version_wait_s=0.1)
    server = HttpServer(create_app(settings, versions), settings, name="policy")
    url = server.start()
    try:
        for name in ("a@1", "b@1", "a@2", "b@1", "a@1"):
            assert httpx.get(f"{url}/v1/models/{name}", timeout=60).json()["id"] == name
            _check_weights(url, name, of_name[name])
        missing = httpx.get(f"{url}/v1/models/c@1", timeout=60)
        assert (missing.status_code, missing.json()["error"]["code"]) == (503, "version_unusable")
        assert str(gone) in missing.json()["error"]["message"]
        assert httpx.get(f"{url}/v1/models/nobody@1", timeout=60).status_code == 404
        shared = httpx.post(f"{url}/v1/chat/completions", json=_body("policy@1"), timeout=60)
        assert shared.status_code == 404
        assert "run 'd' and run 'e'" in shared.json()["error"]["message"]
        _check_weights(url, "d/policy@1", checkpoints[3], answers_as="policy@1")
    finally:
        server.stop()


def _body(model: str) -> dict[str, object]:
    asked: dict[str, object] = {"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 6}
    return asked | {"logprobs": True, "return_token_ids": True}


def _check_weights(url: str, model: str, folder: Path, *, answers_as: str = "") -> None:
    response = httpx.post(f"{url}/v1/chat/completions", json=_body(model), timeout=60).raise_for_status()
    answer = response.json()
    (choice,) = answer["choices"]
    assert answer["model"] == (answers_as or model)
    said = torch.tensor([entry["logprob"] for entry in choice["logprobs"]["content"]])
    expected = reference_logprobs(folder, answer["prompt_token_ids"], choice["token_ids"])
    assert torch.allclose(said, expected, atol=1e-4, rtol=0), model
