"""Training without Kafka: on recorded trajectories, with the weights that the same ones gave through Kafka."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from lightstream.runtime.schema_registry import codec_for
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import TrainingError
from lightstream.schemas.examples import EXAMPLES
from lightstream.schemas.records import ResourcesRecord, RolloutMode, StepOutcome, TrainingStep, Trajectory
from lightstream.schemas.topics import RESOURCES, TRAINING_STEPS
from lightstream.trainers import VERL, AlgorithmContext, Trainer, make_tiny_model, train_recorded
from lightstream.trainers.algorithms.recorded import read_recording, write_recording
from lightstream.trainers.algorithms.replaying import replay_training
from lightstream.trainers.ledger.reading import read_topic
from lightstream.trainers.rollouts.trajectory_source import TrajectorySource
from tests.support.checkpoints import checkpoint_in

from .support.instant_store import InstantStore
from .support.trajectories import make_trajectory, random_trajectory

TASKS, SIZE = 2, 4


def verl_of(model: Path, **changes: Any) -> VERL:
    base: dict[str, Any] = {
        "model": model,
        "steps": 3,
        "tasks_per_step": TASKS,
        "rollouts_per_task": SIZE,
        "learning_rate": 1e-2,
        "logprob_gap_max": math.inf,  # those of these rollouts are made up
        "mini_batches_per_step": 2,
        "device": "cpu",
        "threads": 1,
        "keep_checkpoints": 10,
    }
    return VERL(**(base | changes))


def recorded_steps(steps: int, run_id: str = "run") -> list[Trajectory]:
    """The rollouts of a run's steps, as ``context.enqueue_step`` names them."""
    return [
        random_trajectory(
            f"{group}-{i}", group_id=group, group_size=SIZE, run_id=run_id, policy_version=step - 1
        ).model_copy(update={"reward": float(i % 2)})  # so that each step makes a version
        for step in range(1, steps + 1)
        for group in (f"{run_id}-s{step}-g{g}" for g in range(TASKS))
        for i in range(SIZE)
    ]


def contents(data_dir: Path, checkpoints: Sequence[str | None]) -> list[bytes]:
    return [(checkpoint_in(data_dir, url) / "model.safetensors").read_bytes() for url in checkpoints if url is not None]


def bytes_written() -> int:
    """By this process, as the kernel counts them."""
    counts = dict(line.split(": ") for line in Path("/proc/self/io").read_text("ascii").splitlines())
    return int(counts["wchar"])


def published_trajectories(settings: Settings) -> list[Trajectory]:
    source = TrajectorySource(settings, "t", run_id="run")
    source.start({})
    found: list[Trajectory] = []
    ends = source.end_offsets()
    while not source.has_read(ends):
        found += [logged.trajectory for logged in source.poll(1)]
    source.close()
    return found


def test_the_same_trajectories_give_the_same_weights_through_kafka_and_from_a_file(
    settings: Settings, tmp_path: Path
) -> None:
    settings = settings.model_copy(update={"proxy_url": "http://127.0.0.1:9"})  # nobody calls it
    algorithm = verl_of(make_tiny_model(tmp_path / "model"))
    Trainer(
        algorithm=algorithm,
        n_runners=0,
        settings=settings,
        store=InstantStore(settings),
        trainer_id="run",
        seed=5,
        progress=False,
    ).fit(None, ["task"])
    codec = codec_for(settings)
    records = read_topic(settings, TRAINING_STEPS, codec, group_id="t")
    steps = [r for _, r in records if isinstance(r, TrainingStep)]
    assert write_recording(published_trajectories(settings), tmp_path / "run.jsonl") == 24

    ledger = train_recorded(algorithm, tmp_path / "run.jsonl", tmp_path / "again", seed=5)
    through_kafka = contents(settings.data_dir, [step.checkpoint_url for step in steps])
    assert len(through_kafka) == 3
    assert contents(tmp_path / "again", [step.checkpoint_url for step in ledger.steps]) == through_kafka
    assert [step.consumed for step in ledger.steps] == [step.consumed for step in steps]

    replayed = replay_training(settings, "run", tmp_path / "replayed")
    assert (replayed.steps, replayed.compared) == ([1, 2, 3], [1, 2, 3])
    assert (replayed.differing, replayed.other_weights) == ({}, [])
    assert (replayed.weights / "model.safetensors").read_bytes() == through_kafka[-1]
    (checkpoint_in(settings.data_dir, steps[1].checkpoint_url) / "model.safetensors").write_bytes(b"other weights")
    assert replay_training(settings, "run", tmp_path / "replayed").other_weights == [2]
    with pytest.raises(TrainingError, match="there is no step of run 'nobody'"):
        replay_training(settings, "nobody", tmp_path / "replayed")
    published = read_topic(settings, RESOURCES, codec, group_id="t")
    assert [r.resources_id for _, r in published if isinstance(r, ResourcesRecord)] == [
        r.resources_id for r in ledger.resources
    ]


def test_nothing_of_kafka_nor_readers_of_data_sets_is_even_imported(tmp_path: Path) -> None:
    write_recording(recorded_steps(1), tmp_path / "run.jsonl")
    model = make_tiny_model(tmp_path / "model")
    program = f"""
import sys
sys.modules |= dict.fromkeys(("confluent_kafka", "aiokafka", "faust", "duckdb", "datasets"))  # importing them fails
from pathlib import Path
from statistics import fmean
from lightstream.trainers import VERL, train_recorded
verl = VERL(
    model={str(model)!r}, steps=1, tasks_per_step={TASKS}, rollouts_per_task={SIZE}, device="cpu", threads=1,
    logprob_gap_max=float("inf"),
)
ledger = train_recorded(verl, Path({str(tmp_path / "run.jsonl")!r}), Path({str(tmp_path / "out")!r}))
print([step.outcome.value for step in ledger.steps])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "['updated']"


def test_with_remax_greedy_rollouts_are_consumed_and_not_trained_on(tmp_path: Path) -> None:
    recorded = [
        t.model_copy(update={"mode": RolloutMode.TEST}) if t.rollout_id.endswith(f"-{SIZE - 1}") else t
        for t in recorded_steps(3)
    ]
    write_recording(recorded, tmp_path / "run.jsonl")
    verl = verl_of(make_tiny_model(tmp_path / "model"), advantage="remax", rollouts_per_task=SIZE - 1)
    ledger = train_recorded(verl, tmp_path / "run.jsonl", tmp_path / "out")
    assert [step.outcome for step in ledger.steps] == [StepOutcome.UPDATED] * 3
    for step in ledger.steps:
        rewards = {t.rollout_id: t.reward or 0.0 for t in recorded if t.rollout_id.startswith(f"run-s{step.step}-")}
        greedy = [name for name in rewards if name.endswith(f"-{SIZE - 1}")]
        assert step.metrics["reward/baseline"] == pytest.approx(fmean(rewards[name] for name in greedy))
        assert step.metrics["reward/mean"] == pytest.approx(fmean(rewards[n] for n in rewards if n not in greedy))
        consumed = {c.rollout_id: c for c in step.consumed}
        assert set(consumed) == set(rewards)
        for name in rewards:
            assert set(consumed[name].not_trained) <= {"not_for_training" if name in greedy else "no_signal"}
            assert not (name in greedy and consumed[name].triplet_count)


def test_groups_that_are_not_in_the_recording_are_skipped(tmp_path: Path) -> None:
    recorded = [t for t in recorded_steps(2) if t.rollout_id != "run-s2-g0-1"]
    write_recording(recorded, tmp_path / "run.jsonl")
    verl = verl_of(make_tiny_model(tmp_path / "model"), steps=3, steps_without_signal_max=1)
    with pytest.raises(TrainingError, match=r"1 tries of step 3; no group was complete in time"):
        train_recorded(verl, tmp_path / "run.jsonl", tmp_path / "out")

    seen: list[tuple[int, list[str]]] = []

    def note(context: AlgorithmContext) -> None:
        for step in (1, 2):
            groups = context.collect(context.enqueue_step(step, tasks=TASKS, rollouts_per_task=SIZE))
            context.commit(step, groups, started_unix_nano=context.now())
            seen.append((step, [group.group_id for group in groups]))

    ledger = train_recorded(note, tmp_path / "run.jsonl", tmp_path / "noted")
    assert seen == [(1, ["run-s1-g0", "run-s1-g1"]), (2, ["run-s2-g1"])]
    assert ledger.steps[1].skipped_groups == ["run-s2-g0"]
    assert ledger.steps[1].low_water[0].offset == len(recorded)
    assert ledger.open().last_step == 2
    assert [step.outcome for step in ledger.steps] == [StepOutcome.UPDATED] * 2


def test_a_recording_holds_all_of_a_trajectory(tmp_path: Path) -> None:
    example = next(record for record in EXAMPLES if isinstance(record, Trajectory))
    odd = make_trajectory("odd", reward=math.inf, mode=RolloutMode.VAL)
    assert write_recording([example, odd], tmp_path / "some.jsonl") == 2
    assert read_recording(tmp_path / "some.jsonl") == [example, odd]


def test_a_file_that_is_no_recording_is_named(tmp_path: Path) -> None:
    verl = verl_of(tmp_path)
    with pytest.raises(TrainingError, match=r"gone\.jsonl cannot be read"):
        train_recorded(verl, tmp_path / "gone.jsonl", tmp_path / "out")
    write_recording(recorded_steps(1), tmp_path / "run.jsonl")
    with (tmp_path / "run.jsonl").open("a") as file:
        file.write("{}\n")
    with pytest.raises(TrainingError, match=r"line 9 of .*run\.jsonl is no trajectory"):
        train_recorded(verl, tmp_path / "run.jsonl", tmp_path / "out")
    write_recording([*recorded_steps(1), *recorded_steps(1, "other")], tmp_path / "two.jsonl")
    with pytest.raises(TrainingError, match=r"has 2 runs: other, run\..*run_id="):
        train_recorded(verl, tmp_path / "two.jsonl", tmp_path / "out")


def test_checkpoints_of_the_run_that_was_recorded_are_never_touched(tmp_path: Path) -> None:
    write_recording(recorded_steps(1), tmp_path / "run.jsonl")
    (tmp_path / "checkpoints" / "run" / "step-000001").mkdir(parents=True)
    with pytest.raises(TrainingError, match="has checkpoints of run 'run' already"):
        train_recorded(verl_of(tmp_path), tmp_path / "run.jsonl", tmp_path)
    assert (tmp_path / "checkpoints" / "run" / "step-000001").is_dir()


def test_a_checkpoint_every_ten_steps_writes_less_than_half_of_one_every_step(tmp_path: Path) -> None:
    """Servers get weights each step either way; with AdamW's moments a checkpoint is three times as much."""
    model = make_tiny_model(tmp_path / "model")
    write_recording(recorded_steps(10), tmp_path / "run.jsonl")
    written: dict[int, int] = {}
    for every in (1, 10):
        before = bytes_written()
        algorithm = verl_of(model, steps=10, checkpoint_every=every)
        train_recorded(algorithm, tmp_path / "run.jsonl", tmp_path / f"every{every}")
        written[every] = bytes_written() - before
    assert written[10] < 0.5 * written[1]
