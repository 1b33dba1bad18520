"""A restart goes on from the last checkpoint, and makes the committed steps after it again: the same to the bit."""

from __future__ import annotations

import math
import resource
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import TrainingError
from lightstream.schemas.records import ResourcesRecord, Trajectory
from lightstream.trainers import VERL, AlgorithmContext, make_tiny_model
from lightstream.trainers.algorithms.recorded import recorded_context
from lightstream.trainers.ledger import MemoryLedger
from lightstream.trainers.loop import recovery
from lightstream.trainers.run.history import StepCommit
from lightstream.trainers.servers.following import NoServers
from tests.support.checkpoints import checkpoint_in

from .support.trajectories import random_trajectory

TASKS, SIZE = 2, 4


class Recorded:
    """A run on recorded rollouts, each ``train`` of which is a process of its own."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.ledger = MemoryLedger(trainer_id="run", run_id="run")
        self.log = [
            random_trajectory(
                f"{group}-{i}", group_id=group, group_size=SIZE, run_id="run", policy_version=step - 1
            ).model_copy(update={"reward": float(i % 2)})  # so that each step makes a version
            for step in range(1, 8)
            for group in (f"run-s{step}-g{g}" for g in range(TASKS))
            for i in range(SIZE)
        ]
        self.options: dict[str, Any] = {
            "model": make_tiny_model(folder.parent / "model"),
            "tasks_per_step": TASKS,
            "rollouts_per_task": SIZE,
            "learning_rate": 1e-2,
            "logprob_gap_max": math.inf,  # those of these rollouts are made up
            "device": "cpu",
            "threads": 1,
        } | options

    def train(self, steps: int) -> bytes:
        """Go on up to this step; the served weights after it."""
        VERL(steps=steps, **self.options).run(self.context())
        return (checkpoint_in(self.folder, self.ledger.resources[-1].checkpoint_url) / "model.safetensors").read_bytes()

    def context(self) -> AlgorithmContext:
        """The context of a new process."""
        return recorded_context(
            self.log,
            settings=Settings.load(data_dir=self.folder),
            ledger=self.ledger,
            history=self.ledger.open(),
            run_id="run",
        )

    def checkpoints(self) -> list[str]:
        """The steps of the recovery checkpoints on the disk."""
        root = self.folder / "recovery" / "run"
        return sorted("-".join(path.name.split("-")[:2]) for path in root.iterdir()) if root.is_dir() else []


@pytest.fixture
def whole(tmp_path: Path) -> bytes:
    return Recorded(tmp_path / "whole", checkpoint_every=1).train(7)


@pytest.mark.parametrize("every", [1, 3, 100])
def test_a_run_in_pieces_has_the_weights_of_one_in_one_go(tmp_path: Path, whole: bytes, every: int) -> None:
    run = Recorded(tmp_path / "pieces", checkpoint_every=every)
    for steps in (1, 2, 5, 6, 7):
        weights = run.train(steps)
    assert weights == whole
    assert run.checkpoints() == {1: ["step-000006"], 3: ["step-000006"], 100: []}[every]
    served = list((tmp_path / "pieces" / "checkpoints" / "run").iterdir())
    assert len(served) == 5, "the last four, and the first version"
    assert not any((path / "optimizer.safetensors").exists() for path in served)


@pytest.mark.parametrize(
    "options",
    [
        {"kl_loss_coefficient": 2.0},
        {"kl_reward_coefficient": 2.0},
        {"lora_rank": 4},
        {"lora_rank": 4, "kl_loss_coefficient": 2.0},
        {"advantage": "gae", "critic_learning_rate": 1e-2, "lam": 0.9},
        {"advantage": "gae", "critic_warmup_steps": 2, "kl_reward_coefficient": 2.0, "lora_rank": 4},
    ],
    ids=["loss", "reward", "adapter", "adapter and loss", "critic", "critic and all"],
)
def test_a_run_in_pieces_keeps_its_reference_its_adapter_and_its_critic(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    """The first weights are the reference, not those of the checkpoint that a process begins with."""
    options = {**options, "checkpoint_every": 3}
    whole = Recorded(tmp_path / "whole", **options).train(5)
    run = Recorded(tmp_path / "pieces", **options)
    assert [run.train(steps) for steps in (1, 4, 5)][-1] == whole
    assert Recorded(tmp_path / "without").train(5) != whole


def test_a_revision_that_came_later_does_not_change_what_was_made(tmp_path: Path, whole: bytes) -> None:
    run = Recorded(tmp_path / "revised", checkpoint_every=100)
    run.train(3)
    run.log += [t.model_copy(update={"revision": 1, "reward": 5.0}) for t in run.log[: 2 * SIZE]]
    assert run.train(7) == whole


def otherwise(run: Recorded) -> None:
    """Change what a step learned from, as another version does that selects or computes otherwise."""
    run.log = [t.model_copy(update={"reward": 1 - (t.reward or 0.0)}) for t in run.log[: TASKS * SIZE]] + run.log[
        TASKS * SIZE :
    ]


def test_steps_that_come_out_otherwise_leave_the_weights_that_are_served(
    tmp_path: Path, whole: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    run = Recorded(tmp_path / "other", checkpoint_every=100)
    served = run.train(3)
    otherwise(run)
    after = run.train(4)
    assert "steps 1 to 3 of run 'run' gave other weights when made again" in caplog.text
    assert after not in (served, whole)
    assert run.checkpoints() == ["step-000003"], "a restart goes on from there"
    caplog.clear()
    in_pieces = run.train(5)
    assert "other weights" not in caplog.text
    assert in_pieces != after


def test_an_adapter_whose_steps_come_out_otherwise_is_refused(tmp_path: Path) -> None:
    run = Recorded(tmp_path / "other", checkpoint_every=100, lora_rank=4)
    run.train(3)
    otherwise(run)
    with pytest.raises(TrainingError, match=r"steps 1 to 3 .* Go on with that version, or start a new run"):
        run.train(4)


def test_a_lost_checkpoint_costs_time_alone_while_the_first_version_is_there(tmp_path: Path, whole: bytes) -> None:
    run = Recorded(tmp_path / "lost", checkpoint_every=2, keep_checkpoints=20)
    run.train(6)
    shutil.rmtree(tmp_path / "lost" / "recovery")
    assert run.train(7) == whole


def test_a_lost_checkpoint_is_not_made_up_for_by_the_last_steps_alone(tmp_path: Path) -> None:
    """A snapshot of the history has the updates since the checkpoint, not those before it."""
    run = Recorded(tmp_path / "short", checkpoint_every=2, keep_checkpoints=20)
    run.train(6)
    shutil.rmtree(tmp_path / "short" / "recovery")
    context = run.context()
    del context.history.updates[:-2]
    with pytest.raises(TrainingError, match="begins after the first") as told:
        VERL(steps=7, **run.options).run(context)
    assert str(tmp_path / "short" / "ledger") in told.value.next_step
    assert len(run.ledger.steps) == 6


@contextmanager
def full_disk() -> Generator[None]:
    """No file may grow beyond less than a model takes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    ("every", "compared", "problem"),
    [
        (1, False, "the weights of step 2 of run 'run' cannot be written, to compare them .*Make room"),
        (1, True, "checkpoint of step 2 cannot be written to .*Make room"),
        (100, True, "checkpoint of step 3 cannot be written to .*Make room"),
    ],
    ids=["comparison", "checkpoint", "weights"],
)
def test_a_full_disk_ends_the_run_and_loses_nothing(
    tmp_path: Path, whole: bytes, monkeypatch: pytest.MonkeyPatch, every: int, compared: bool, problem: str
) -> None:
    """Full when it goes on, or just after the steps that were made again are compared with what is served."""
    run = Recorded(tmp_path / "full", checkpoint_every=every)
    run.train(2)
    with full_disk(), monkeypatch.context() as patch:
        if compared:
            patch.setattr(recovery, "has_weights_of", lambda *_: True)
        with pytest.raises(TrainingError, match=problem):
            run.train(7)
    assert [commit.step for commit in run.ledger.steps] == [1, 2]
    for kind in ("checkpoints", "recovery"):
        assert not list((tmp_path / "full" / kind / "run").glob(".*")), "nothing half written is left"
    assert run.train(7) == whole


def test_a_model_that_the_disk_has_no_room_for(tmp_path: Path) -> None:
    run = Recorded(tmp_path / "full")
    with full_disk(), pytest.raises(TrainingError, match="checkpoint of step 0 cannot be written"):
        run.train(1)
    assert run.train(1)


def test_a_checkpoint_of_another_run_of_this_name_is_passed_over(tmp_path: Path, whole: bytes) -> None:
    run = Recorded(tmp_path / "other", checkpoint_every=1)
    run.train(3)
    shutil.rmtree(tmp_path / "other" / "checkpoints")
    run.ledger = MemoryLedger(trainer_id="run", run_id="run")
    assert run.train(7) == whole


def test_what_is_gone_from_the_log_is_named(tmp_path: Path) -> None:
    run = Recorded(tmp_path / "gone", checkpoint_every=100)
    run.train(2)
    log: list[Trajectory] = run.log
    run.log = [t for t in log if t.rollout_id != "run-s2-g0-0"]
    with pytest.raises(TrainingError, match="step 2 of run 'run' cannot be made again: 1 of its trajectories are gone"):
        run.train(3)
    shutil.rmtree(tmp_path / "gone" / "checkpoints")
    with pytest.raises(TrainingError, match=r"checkpoints/run/step-\S+ of 'run.*' is gone: .*LIGHTSTREAM_DATA_DIR"):
        run.train(3)


class WatchedLedger(MemoryLedger):
    """Checks, when a step is committed, what must be there before and what must not."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(trainer_id="run", run_id="run")
        self.data_dir = data_dir
        self.loaded: list[str] = []

    def commit(self, commit: StepCommit) -> None:
        made = commit.resources
        assert made is not None
        assert made.resources_id not in self.loaded
        assert (checkpoint_in(self.data_dir, made.checkpoint_url) / "model.safetensors").is_file()
        super().commit(commit)


class WatchedServers(NoServers):
    """Checks that what is loaded was committed, and that sampling pauses meanwhile."""

    def __init__(self, ledger: WatchedLedger) -> None:
        self._ledger = ledger
        self._paused = False

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False

    def load(self, resources: ResourcesRecord) -> float:
        assert self._paused
        assert self._ledger.resources[-1] == resources
        self._ledger.loaded.append(resources.resources_id)
        return 0.0


def test_weights_are_on_the_disk_before_the_transaction_and_served_after_it(tmp_path: Path) -> None:
    run = Recorded(tmp_path / "order")
    ledger = run.ledger = WatchedLedger(run.folder)
    context = replace(run.context(), servers=WatchedServers(ledger))
    VERL(steps=3, **run.options).run(context)
    assert list(dict.fromkeys(ledger.loaded)) == ["run-v0", "run-v1", "run-v2"], (
        "nobody samples from the version of the last step"
    )
    assert [made.resources_id for made in ledger.resources] == ["run-v0", "run-v1", "run-v2", "run-v3"]
