"""verl's own trainer in two processes of Ray's: the updates of one, recovery, and errors that say what happened."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import ray
from safetensors.numpy import load_file

from lightstream.schemas.errors import TrainingError
from lightstream.trainers import VERL, make_tiny_model
from lightstream.trainers.protocols import Engine
from lightstream.trainers.verl_on_ray import PPOTrainerEngine
from tests.trainers.verl_on_ray.test_ray_engine import SAME, assert_close, batch, options, two_steps

pytestmark = pytest.mark.verl_ray


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """One Ray for all tests here."""
    local: dict[str, Any] = {"num_cpus": 6, "include_dashboard": False, "object_store_memory": 256 << 20}
    ray.init(log_to_driver=False, **({} if "RAY_ADDRESS" in os.environ else local))
    yield
    ray.shutdown()


def both(model: Path, **changes: Any) -> tuple[VERL, Engine]:
    """The options of verl's own trainer, and an engine in this process to compare with."""
    config = options(model, engine="verl", **changes)
    return config, replace(config, processes=1, engine="process").new_engine(model)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"advantage": "rloo"}, id="RLOO, one update"),
        pytest.param({"mini_batches_per_step": 3, "epochs_per_step": 2}, id="six updates"),
        pytest.param({"steps_ahead": 1, "entropy_coefficient": 0.01}, id="corrected, entropy"),
        pytest.param({"kl_loss_coefficient": 0.1, "policy_loss": "gspo", "mini_batches_per_step": 2}, id="KL and GSPO"),
    ],
)
def test_it_makes_the_updates_of_one_process(model: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    config, one = both(model, **changes)
    verls = PPOTrainerEngine(config, model)
    if config.compares_with_reference:
        arrays = batch(0, scoring=config.scoring)
        np.testing.assert_allclose(verls.kl_to_reference(arrays), one.kl_to_reference(arrays), atol=1e-5)
    in_verl, whole = two_steps(verls, tmp_path / "verl", config.scoring)
    in_one, weights = two_steps(one, tmp_path / "one", config.scoring)
    for ours, theirs in zip(in_verl, in_one, strict=True):
        chosen = {name for name in theirs if name.startswith((*SAME, "correction"))}
        assert len(chosen) > 8
        assert_close({name: ours[name] for name in chosen}, {name: theirs[name] for name in chosen})
    assert_close(whole, weights, within=1e-3)  # Adam divides gradients that are nearly zero by themselves
    files = {folder: {file.name for file in (tmp_path / folder).iterdir()} for folder in ("verl", "one")}
    assert files["verl"] == files["one"]


def test_a_checkpoint_goes_on_to_the_bit(model: Path, tmp_path: Path) -> None:
    """The weights of a run that was not interrupted, after one that was."""
    config = options(model, engine="verl", processes=1, lr_schedule="cosine")
    undisturbed = PPOTrainerEngine(config, model)
    undisturbed.update(batch(0), policy_version=0, seed=(7, 0))
    saved, expected, found = (tmp_path / name for name in ("saved", "expected", "found"))
    for folder in (saved, expected, found):
        folder.mkdir()
    undisturbed.save(saved)
    next_step = undisturbed.update(batch(1), policy_version=1, seed=(7, 1))
    undisturbed.save(expected)
    undisturbed.close()
    again = PPOTrainerEngine(config, saved, first=model)
    again.update(batch(1), policy_version=1, seed=(7, 1))
    again.save(found)
    again.close()
    for name in ("model.safetensors", "optimizer.safetensors"):
        ours, theirs = load_file(found / name), load_file(expected / name)
        assert ours.keys() == theirs.keys()
        for key, tensor in theirs.items():
            np.testing.assert_array_equal(ours[key], tensor, err_msg=key)
    assert (found / "trainer.json").read_bytes() == (expected / "trainer.json").read_bytes()
    another = replace(config, engine="process").new_engine(saved, model)
    of_another = another.update(batch(1), policy_version=1, seed=(7, 1))
    names = ("loss", "grad_norm", "lr", "actor/entropy")
    assert_close({name: of_another[name] for name in names}, {name: next_step[name] for name in names})


def training_processes() -> list[int]:
    """Process ids of those that hold the model."""
    found = psutil.process_iter(["cmdline"])  # None where a process has just ended
    return [process.pid for process in found if "ray::WorkerDict" in "".join((process.info["cmdline"] or [])[:1])]


def test_more_processes_than_there_is_room_for_are_refused(model: Path) -> None:
    with pytest.raises(TrainingError, match="16 training processes and 3 beside them need as many CPUs; Ray has"):
        PPOTrainerEngine(options(model, engine="verl", processes=16), model)


def test_a_process_that_dies_ends_the_step(model: Path, tmp_path: Path) -> None:
    engine = PPOTrainerEngine(options(model, engine="verl"), model)
    with pytest.raises(TrainingError, match="has a TransferQueue already, of another training"):
        PPOTrainerEngine(options(model, engine="verl"), model)
    silent = replace(batch(0), advantages=np.zeros_like(batch(0).advantages))
    assert engine.update(silent)["rows/computed"] == 0
    engine.update(batch(0))
    psutil.Process(training_processes()[1]).kill()
    with pytest.raises(TrainingError, match=r"a training process (died|failed)") as told:
        engine.update(batch(1))
    assert "Nothing of the step is committed" in told.value.next_step
    with pytest.raises(TrainingError, match="have ended"):
        engine.save(tmp_path)
    assert list(tmp_path.iterdir()) == []
