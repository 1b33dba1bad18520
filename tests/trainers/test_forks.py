"""Forks of a run: the same steps from changed trajectories, against trainings that had these from the beginning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from lightstream.runtime.schema_registry import codec_for
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import TrainingError
from lightstream.schemas.records import StepOutcome, TrainingStep, Trajectory
from lightstream.schemas.topics import TRAINING_STEPS
from lightstream.schemas.types import EnqueueRolloutRequest
from lightstream.trainers import VERL, Trainer, make_tiny_model, train_recorded
from lightstream.trainers.algorithms.recorded import write_recording
from lightstream.trainers.algorithms.replaying import replay_training
from lightstream.trainers.ledger.reading import read_topic
from lightstream.trainers.loop.recovery import Change

from .support.instant_store import InstantStore
from .test_recorded import contents, published_trajectories, verl_of

SEED = 5
FLAT = "run-s2-"
"""Rollouts of the second step all have one reward, so it changes nothing."""


@dataclass(frozen=True)
class Trained:
    """A run through Kafka: its algorithm, committed steps and trajectories."""

    settings: Settings
    verl: VERL
    steps: list[TrainingStep]
    trajectories: list[Trajectory]
    folder: Path

    def weights_with(self, name: str, trajectories: Sequence[Trajectory]) -> bytes:
        """The last weights of a training that had these trajectories from its beginning."""
        write_recording(trajectories, self.folder / f"{name}.jsonl")
        out = self.folder / name
        ledger = train_recorded(self.verl, self.folder / f"{name}.jsonl", out, seed=SEED)
        return contents(out, [step.checkpoint_url for step in ledger.steps])[-1]


def rewarded(trajectory: Trajectory) -> Trajectory:
    """Another reward than before for every rollout, also where all had the same."""
    number = int(trajectory.rollout_id.rpartition("-")[2])
    return trajectory.model_copy(update={"reward": float(number == 0)})


def newer(trajectory: Trajectory) -> Trajectory:
    """By the version that its step samples from, were none of the steps before it flat."""
    version = int(trajectory.rollout_id.split("-")[1][1:]) - 1
    named = {"policy_version": version, "resources_id": f"run-v{version}"}
    triplets = [triplet.model_copy(update=named) for triplet in trajectory.triplets]
    return trajectory.model_copy(update={"triplets": triplets})


class OneFlatStep(InstantStore):
    """Rewards every second rollout; in the second step all."""

    def trajectory(self, request: EnqueueRolloutRequest) -> Trajectory:
        made = super().trajectory(request)
        reward = 1.0 if made.rollout_id.startswith(FLAT) else float(int(made.rollout_id[-1]) % 2)
        return made.model_copy(update={"reward": reward})


@pytest.fixture
def trained(settings: Settings, tmp_path: Path) -> Trained:
    settings = settings.model_copy(update={"proxy_url": "http://127.0.0.1:9"})  # nobody calls it
    verl = verl_of(make_tiny_model(tmp_path / "model"), steps=4)
    trainer = Trainer(
        algorithm=verl,
        n_runners=0,
        settings=settings,
        store=OneFlatStep(settings),
        trainer_id="run",
        seed=SEED,
        progress=False,
    )
    trainer.fit(None, ["task"])
    records = read_topic(settings, TRAINING_STEPS, codec_for(settings), group_id="t")
    steps = [r for _, r in records if isinstance(r, TrainingStep)]
    return Trained(settings, verl, steps, published_trajectories(settings), tmp_path)


def test_a_fork_has_the_weights_of_a_training_that_had_its_trajectories(trained: Trained, tmp_path: Path) -> None:
    outcomes = [step.outcome for step in trained.steps]
    assert outcomes == [
        StepOutcome.UPDATED,
        StepOutcome.UNCHANGED,
        StepOutcome.UPDATED,
        StepOutcome.UPDATED,
    ]
    committed = contents(trained.settings.data_dir, [trained.steps[-1].checkpoint_url])[0]

    same = replay_training(trained.settings, "run", tmp_path / "same", at=1, fork=lambda _: lambda t: t)
    assert (same.weights / "model.safetensors").read_bytes() == committed
    assert (same.differing, same.other_weights) == ({}, [])
    assert [step for step, metrics in same.metrics.items() if "actor/pg_loss" in metrics] == [1, 3, 4]

    other = replay_training(trained.settings, "run", tmp_path / "other", at=1, fork=lambda _: rewarded)
    assert [step for step, metrics in other.metrics.items() if "actor/pg_loss" in metrics] == [1, 2, 3, 4]
    assert other.committed == {step.step: step.metrics for step in trained.steps}
    assert set(other.differing) == {2, 3, 4}, "the first step is kept"
    assert other.compared == [1], "weights of a fork are others"
    later = [t if t.rollout_id.startswith("run-s1-") else newer(rewarded(t)) for t in trained.trajectories]
    assert (other.weights / "model.safetensors").read_bytes() == trained.weights_with("later", later) != committed


def test_without_some_rollouts_it_has_the_weights_of_a_run_that_never_saw_them(
    trained: Trained, tmp_path: Path
) -> None:
    poisoned = {"run-s1-g0", "run-s3-g1"}
    kept = [t for t in trained.trajectories if t.group_id not in poisoned]
    assert 0 < len(kept) < len(trained.trajectories)

    def without(trajectory: Trajectory) -> Trajectory | None:
        return None if trajectory.group_id in poisoned else trajectory

    fork = replay_training(trained.settings, "run", tmp_path / "without", fork=lambda _: without)
    assert (fork.weights / "model.safetensors").read_bytes() == trained.weights_with("kept", kept)


def test_a_step_of_which_nothing_is_left_changes_nothing(trained: Trained, tmp_path: Path) -> None:
    def without(trajectory: Trajectory) -> Trajectory | None:
        return None if trajectory.rollout_id.startswith("run-s4-") else trajectory

    fork = replay_training(trained.settings, "run", tmp_path / "without", fork=lambda _: without)
    assert fork.steps == [1, 2, 3, 4]
    assert fork.metrics[4] == {}
    assert (fork.weights / "model.safetensors").read_bytes() == contents(
        trained.settings.data_dir, [trained.steps[2].checkpoint_url]
    )[0]


def test_it_begins_after_a_step_that_changed_nothing_too(trained: Trained, tmp_path: Path) -> None:
    seen: list[int] = []

    def fork(steps: Sequence[TrainingStep]) -> Change:
        seen.extend(step.step for step in steps)
        return rewarded

    other = replay_training(trained.settings, "run", tmp_path / "other", at=2, fork=fork)
    assert (seen, other.steps) == ([3, 4], [1, 3, 4])


@pytest.mark.parametrize("at", [4, 9])
def test_a_step_that_none_follows_is_named(trained: Trained, tmp_path: Path, at: int) -> None:
    with pytest.raises(TrainingError, match=f"run 'run' has no step after {at} to make again: its last is 4"):
        replay_training(trained.settings, "run", tmp_path / "none", at=at, fork=lambda _: rewarded)
