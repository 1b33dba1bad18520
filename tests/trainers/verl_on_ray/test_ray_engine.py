"""verl in two processes of Ray's (FSDP2 on gloo): the same updates as in one, and errors that say what happened."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import ray
from ray.util import placement_group_table
from safetensors.numpy import load_file

from lightstream.schemas.errors import TrainingError
from lightstream.trainers import VERL, make_tiny_model
from lightstream.trainers.engines.ray import RayEngine
from lightstream.trainers.engines.verl.engine import VerlEngine
from lightstream.trainers.loop.protocols import Engine
from lightstream.trainers.rollouts.batch import BatchArrays, Scoring, build_arrays, select_rows
from lightstream.trainers.rollouts.groups import Group
from lightstream.trainers.run.checkpoint import CheckpointFolder
from tests.support.waiting import eventually
from tests.trainers.support.trajectories import random_trajectory

pytestmark = pytest.mark.verl_ray

SAME = ("loss", "grad_norm", "actor/", "critic/", "logprob_", "rollout_corr")
CRITIC = {"advantage": "gae", "critic_learning_rate": 3e-3, "lam": 0.95, "gamma": 0.99}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """One Ray for all tests here."""
    ray.init(num_cpus=3, include_dashboard=False, object_store_memory=256 << 20, log_to_driver=False)
    yield
    ray.shutdown()


def options(model: Path, **changes: Any) -> VERL:
    base: dict[str, Any] = {
        "model": model,
        "steps": 20,
        "learning_rate": 3e-3,
        "threads": 1,
        "device": "cpu",
        "tokens_per_micro_batch": 60,
        "processes": 2,
    }
    return VERL(**(base | changes))


def batch(step: int, groups: int = 3, size: int = 4, scoring: Scoring | None = None) -> BatchArrays:
    made = [
        Group(
            name,
            tuple(
                random_trajectory(f"{name}-{i}", group_id=name, group_size=size, run_id="run", policy_version=step)
                for i in range(size)
            ),
        )
        for name in (f"s{step}-g{g}" for g in range(groups))
    ]
    return build_arrays(select_rows(made, scoring=scoring))


def two_steps(
    engine: Engine, folder: Path, scoring: Scoring | None = None
) -> tuple[list[dict[str, float]], dict[str, Any]]:
    """The metrics of two updates, and the weights after them, as servers get them."""
    batches = [batch(step, scoring=scoring) for step in (0, 1)]
    metrics = [engine.update(arrays, policy_version=step, seed=(7, step)) for step, arrays in enumerate(batches)]
    folder.mkdir()
    engine.save_weights(folder)
    engine.close()
    return metrics, load_file(folder / "model.safetensors")


def assert_close(ours: dict[str, Any], theirs: dict[str, Any], within: float = 1e-5) -> None:
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name], value, rtol=within, atol=within, err_msg=name)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="one update"),
        pytest.param({"mini_batches_per_step": 3, "epochs_per_step": 2}, id="six updates"),
        pytest.param({"steps_ahead": 1}, id="corrected"),
        pytest.param({"entropy_coefficient": 0.01, "loss_normalisation": "rollout"}, id="entropy"),
        pytest.param({"kl_loss_coefficient": 0.1, "policy_loss": "gspo", "mini_batches_per_step": 2}, id="KL and GSPO"),
        pytest.param({"lora_rank": 4, "kl_loss_coefficient": 0.1}, id="adapter"),
        pytest.param({"chunked_logits": True, "rows_per_micro_batch": 3}, id="chunks of logits"),
        pytest.param(CRITIC | {"mini_batches_per_step": 2, "kl_reward_coefficient": 0.1}, id="critic"),
    ],
)
def test_two_processes_make_the_updates_of_one(model: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    config = options(model, **changes)
    one = VerlEngine(replace(config, processes=1), model)
    in_one, weights = two_steps(one, tmp_path / "one", config.scoring)
    in_two, sharded = two_steps(RayEngine(config, model), tmp_path / "two", config.scoring)
    for ours, theirs in zip(in_two, in_one, strict=True):
        chosen = {name for name in theirs if name.startswith(SAME)}
        assert len(chosen) > 8
        assert_close({name: ours[name] for name in chosen}, {name: theirs[name] for name in chosen})
    assert_close(sharded, weights, within=1e-3)  # Adam divides gradients that are nearly zero by themselves


def test_one_row_with_a_signal_leaves_a_process_without_work(model: Path) -> None:
    arrays = batch(0)
    advantages = np.where(arrays.row_of_token == 2, arrays.response_mask, 0).astype(np.float32)
    arrays = replace(arrays, advantages=advantages)
    one = VerlEngine(options(model, processes=1), model).update(arrays)
    engine = RayEngine(options(model), model)
    try:
        two = engine.update(arrays)
    finally:
        engine.close()
    assert_close({"grad_norm": two["grad_norm"]}, {"grad_norm": one["grad_norm"]})


@pytest.mark.parametrize(
    ("before", "after", "changes"), [(1, 2, {}), (2, 1, {}), (2, 3, {}), (2, 1, CRITIC), (1, 2, CRITIC)]
)
def test_another_number_of_processes_goes_on(
    model: Path, tmp_path: Path, before: int, after: int, changes: dict[str, Any]
) -> None:
    """A checkpoint belongs to no number of processes: moments and schedule go on from where they were."""
    config = options(model, lr_schedule="cosine", **changes)
    batches = [batch(step, scoring=config.scoring) for step in range(3)]

    def engine(processes: int, folder: Path) -> Engine:
        return replace(config, processes=processes).new_engine(folder)

    whole = engine(1, model)
    expected = [whole.update(batches[step], policy_version=step, seed=(step,)) for step in range(3)][-1]
    first = engine(before, model)
    for step in range(2):
        first.update(batches[step], policy_version=step, seed=(step,))
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    first.save(folder)
    first.close()
    second = engine(after, folder)
    found = second.update(batches[2], policy_version=2, seed=(2,))
    second.close()
    of_critic = ("critic/vf_loss", "critic/grad_norm", "critic/lr", "critic/values/mean") if changes else ()
    for name in ("grad_norm", "lr", "actor/pg_loss", "actor/entropy", *of_critic):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, err_msg=name)


def training_processes() -> list[int]:
    """Process ids of those that hold the model."""
    found = psutil.process_iter(["cmdline"])  # None where a process has just ended
    return [process.pid for process in found if "ray::_Process" in "".join((process.info["cmdline"] or [])[:1])]


def test_a_process_that_dies_ends_the_step(model: Path, tmp_path: Path) -> None:
    engine = RayEngine(options(model), model)
    engine.update(batch(0))
    psutil.Process(training_processes()[1]).kill()
    with pytest.raises(TrainingError, match=r"training process \d (died|failed)") as told:
        engine.update(batch(1))
    assert "Nothing of the step is committed" in told.value.next_step
    with pytest.raises(TrainingError, match="have ended"):
        engine.save(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_dies_in_a_gather_is_named_and_the_checkpoint_before_stays(model: Path, tmp_path: Path) -> None:
    """Its file is a pipe that nobody reads: it waits there, and the other one in the first gather for it."""
    checkpoints = CheckpointFolder(tmp_path / "checkpoints")
    engine = RayEngine(options(model), model)
    before = checkpoints.write(1, engine.save)
    failures: list[BaseException] = []

    def fill(folder: Path) -> None:
        os.mkfifo(folder / "model-00002-of-00002.safetensors")
        engine.save(folder)

    def save() -> None:
        try:
            checkpoints.write(2, fill)
        except TrainingError as error:
            failures.append(error)

    saving = threading.Thread(target=save)
    saving.start()

    def other_than_the_writer() -> list[int]:
        pids = set(training_processes())
        writers = {pid for pid in pids if has_open(pid, "model-00001-of-00002.safetensors")}
        return sorted(pids - writers) if writers else []

    (second,) = eventually(other_than_the_writer)
    psutil.Process(second).kill()
    saving.join(300)
    (told,) = failures
    assert "training process 1 died" in str(told)
    assert list(checkpoints.root.iterdir()) == [before]
    again = RayEngine(options(model), before)
    again.close()


def has_open(pid: int, name: str) -> bool:
    return any(Path(file.path).name == name for file in psutil.Process(pid).open_files())


def test_a_full_disk_of_a_process_is_told_as_any(model: Path, tmp_path: Path) -> None:
    engine = RayEngine(options(model), model)

    def fill(folder: Path) -> None:
        (folder / "model-00002-of-00002.safetensors").symlink_to("/dev/full")
        engine.save(folder)

    with pytest.raises(TrainingError, match=r"step 1 cannot be written .*model-00002-of-00002\.safetensors: No space"):
        CheckpointFolder(tmp_path / "checkpoints").write(1, fill)


def test_more_processes_than_there_are_processors_are_refused(model: Path) -> None:
    with pytest.raises(TrainingError, match=r"16 training processes need as many CPUs; Ray has 3, .* are missing"):
        RayEngine(options(model, processes=16, placement_wait_s=0), model)


def free_processors() -> int:
    untyped: Any = ray
    return int(untyped.available_resources().get("CPU", 0))


def test_a_second_training_says_how_many_are_missing_and_waits_as_asked(model: Path) -> None:
    with ThreadPoolExecutor() as pool:
        first = RayEngine(options(model), model)
        try:
            eventually(lambda: free_processors() == 1)
            with pytest.raises(TrainingError, match="Ray has 3, of which 1 are free: 1 are missing") as told:
                RayEngine(options(model, placement_wait_s=0), model)
            assert "placement_wait_s" in told.value.next_step
            second = pool.submit(RayEngine, options(model, placement_wait_s=math.inf), model)
            eventually(lambda: any(group["state"] == "PENDING" for group in placement_group_table().values()))
            assert not second.done()
        finally:
            first.close()
        second.result().close()


def test_more_nodes_than_there_are_machines_are_refused(model: Path) -> None:
    with pytest.raises(TrainingError, match="2 training processes on 2 nodes need 2 with 1 CPUs; Ray has 1 of these"):
        RayEngine(options(model, nodes=2, placement_wait_s=0), model)
    engine = RayEngine(options(model), model)  # and whatever was taken is given back
    engine.close()


def test_a_model_that_cannot_be_loaded_is_named(tmp_path: Path, model: Path) -> None:
    (tmp_path / "config.json").write_text("{}", "utf-8")
    with pytest.raises(TrainingError, match="Unrecognized model"):
        RayEngine(options(tmp_path), tmp_path)
    (tmp_path / "config.json").write_bytes((model / "config.json").read_bytes())
    with pytest.raises(TrainingError, match="training process"):  # its weights are missing, which they find out
        RayEngine(options(tmp_path), tmp_path)
