"""Versions: the newest is served, those in use keep their weights, a bad checkpoint harms no other."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from lightstream.schemas.errors import TrainingError
from lightstream.trainers.run.model.tiny_model import make_tiny_model
from lightstream.trainers.servers.cpu.policy_version import PolicyVersion, Versions
from tests.trainers.policy_server.support import new_versions


def _weights(version: PolicyVersion) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in version.model.state_dict().items()}


def _announce(versions: Versions, checkpoints: list[Path]) -> None:
    for number, folder in enumerate(checkpoints):
        versions.announce(f"policy@{number}", number, str(folder), f"run-v{number}")


def test_the_newest_announced_version_is_served_under_the_plain_name(checkpoints: list[Path]) -> None:
    versions = new_versions()
    assert versions.acquire("policy") is None
    assert versions.names() == []
    _announce(versions, checkpoints[:2])
    versions.load_newest()
    newest = versions.acquire("policy")
    assert newest is not None
    assert (newest.name, newest.number, newest.resources_id) == ("policy@1", 1, "run-v1")
    assert versions.acquire("policy@0") is None  # known, but only loaded on demand
    older = versions.load("policy@0")
    assert older.number == 0
    assert versions.acquire("policy") is newest
    assert versions.names() == ["policy", "policy@1", "policy@0"]


def test_weights_written_over_a_retired_version_are_those_of_the_checkpoint(checkpoints: list[Path]) -> None:
    versions = new_versions(kept=1)
    models: list[int] = []
    for number, folder in enumerate(checkpoints):
        versions.announce(f"policy@{number}", number, str(folder))
        held = versions.load(f"policy@{number}")
        fresh = new_versions()
        fresh.announce("policy@0", 0, str(folder))
        expected = _weights(fresh.load("policy@0"))
        assert all(torch.equal(tensor, expected[name]) for name, tensor in _weights(held).items())
        models.append(id(held.model))
        versions.release(held)
    assert len(set(models)) < len(models)  # memory was used again


def test_a_version_in_use_keeps_its_weights_until_it_is_released(checkpoints: list[Path]) -> None:
    versions = new_versions(kept=1)
    versions.announce("policy@0", 0, str(checkpoints[0]))
    held = versions.load("policy@0")
    before = _weights(held)
    for number in (1, 2, 3):
        versions.announce(f"policy@{number}", number, str(checkpoints[number]))
        versions.load_newest()
    assert all(torch.equal(tensor, before[name]) for name, tensor in _weights(held).items())
    assert "policy@0" in versions.names()
    versions.release(held)
    assert versions.names() == ["policy", "policy@3"]


def test_an_old_version_is_loaded_again_on_demand(checkpoints: list[Path]) -> None:
    versions = new_versions(kept=1)
    _announce(versions, checkpoints)
    versions.load_newest()
    held = versions.load("policy@1")
    assert held.number == 1
    assert versions.acquire("policy@1") is held
    newest = versions.acquire("policy")
    assert newest is not None
    assert newest.number == 3


def test_a_name_announced_again_gets_the_new_weights(checkpoints: list[Path]) -> None:
    versions = new_versions()
    versions.announce("policy@0", 0, str(checkpoints[0]))
    first = versions.load("policy@0")
    versions.announce("policy@0", 0, str(checkpoints[1]))
    assert versions.acquire("policy@0") is None  # not the old weights under the new announcement
    assert versions.acquire("policy") is first  # any version will do until the new one is there
    second = versions.load("policy@0")
    assert second is not first
    assert versions.acquire("policy@0") is second


def test_a_bad_checkpoint_is_reported_and_the_one_before_stays(checkpoints: list[Path], tmp_path: Path) -> None:
    versions = new_versions(kept=1)
    _announce(versions, checkpoints[:2])
    versions.load_newest()
    torn = shutil.copytree(checkpoints[2], tmp_path / "torn")
    weights = torn / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    for name, url in (("policy@7", str(tmp_path / "nowhere")), ("policy@8", str(torn))):
        versions.announce(name, 7, url)
        versions.load_newest()
        with pytest.raises(TrainingError, match=url):
            versions.load(name)
        assert versions.names()[:2] == ["policy", "policy@1"]


@pytest.mark.parametrize("first", [True, False])
def test_weights_that_lack_a_tensor_are_refused(checkpoints: list[Path], tmp_path: Path, first: bool) -> None:
    partial = shutil.copytree(checkpoints[1], tmp_path / "partial")
    tensors = load_file(partial / "model.safetensors")
    del tensors["model.norm.weight"]
    save_file(tensors, partial / "model.safetensors", metadata={"format": "pt"})
    versions = new_versions(kept=1)
    if not first:  # so that weights are written over those of a retired version
        _announce(versions, checkpoints[:2])
        versions.load_newest()
        versions.release(versions.load("policy@0"))
    versions.announce("policy@9", 9, str(partial))
    with pytest.raises(TrainingError, match=r"lack 1 tensors, 'model.norm.weight'"):
        versions.load("policy@9")


@pytest.mark.parametrize("first", [True, False])
def test_weights_of_another_shape_are_refused(checkpoints: list[Path], tmp_path: Path, first: bool) -> None:
    turned = shutil.copytree(checkpoints[1], tmp_path / "turned")
    tensors = load_file(turned / "model.safetensors")
    name = "model.layers.0.mlp.up_proj.weight"
    tensors[name] = tensors[name].T.contiguous()  # as many numbers
    save_file(tensors, turned / "model.safetensors", metadata={"format": "pt"})
    versions = new_versions(kept=1)
    if not first:  # so that weights are written over those of a retired version
        _announce(versions, checkpoints[:2])
        versions.load_newest()
        versions.release(versions.load("policy@0"))
    versions.announce("policy@9", 9, str(turned))
    with pytest.raises(TrainingError, match=r"turned.*Restore the folder"):
        versions.load("policy@9")


def test_another_architecture_is_loaded_anew(checkpoints: list[Path], tmp_path: Path) -> None:
    versions = new_versions(kept=1)
    _announce(versions, checkpoints[:1])
    versions.load_newest()
    versions.announce("policy@1", 1, str(make_tiny_model(tmp_path, hidden_size=32, layers=1)))
    versions.load_newest()
    held = versions.acquire("policy")
    assert held is not None
    assert held.model.config.hidden_size == 32


def test_a_run_of_an_older_version_goes_on_under_its_new_names(checkpoints: list[Path]) -> None:
    """0.2.0 published ``policy@3``; the resumed run publishes the same weights as ``old@3``."""
    versions = new_versions()
    folder = str(checkpoints[0])
    versions.announce("policy@3", 3, folder, "old-v3", run_id="old", also_called="old@3")
    versions.announce("old@3", 3, folder, "old-v3-again", run_id="old")
    assert versions.load("old@3").resources_id == "old-v3-again"
    assert versions.load("policy@3").number == 3
