"""Curves in TensorBoard and in a file of one's own: ``python -m examples.trackers``."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from examples.drawers import TASKS, find, make_model, teach_the_form
from examples.program import program
from examples.system import has_learned, started
from examples.watch import read_curve, show_checks
from lightstream.trainers import VERL, Settings, TensorBoard, TrackedStep, Tracker, Trainer, ViewClient

RUN_ID = "tracked"
TASKS_PER_STEP, SAMPLES = 8, 8
REWARD_TARGET, REWARD_MIN = 0.95, 0.9
"""Training ends once five steps hold the target; it has succeeded where they hold the minimum."""


@dataclass(slots=True)
class Csv:
    """A tracker of one's own: a line for each step."""

    file: Path
    name: str = field(default="csv", init=False)
    package: str = field(default="csv", init=False)

    def open(self, run_id: str, made_with: Mapping[str, str], after_step: int) -> None:
        pass

    def log(self, step: TrackedStep) -> None:
        with self.file.open("a", encoding="utf-8", newline="") as out:
            csv.writer(out).writerow((step.step, step.metrics["reward/mean"]))

    def close(self) -> None:
        pass

    def rewards(self) -> list[float]:
        """The curve, as the file has it."""
        with self.file.open(encoding="utf-8", newline="") as lines:
            return [float(reward) for _, reward in csv.reader(lines)]


def run_trackers(settings: Settings, console: Console, *, steps: int, seed: int) -> bool:
    """Run it all; returns whether both trackers have the curve that the log has.

    Raises:
        LightstreamError: a part of the system could not be started, or stopped answering.
    """
    board, own = TensorBoard(settings.data_dir / "tensorboard"), Csv(settings.data_dir / "rewards.csv")
    model = make_model(settings.data_dir / "model", seed=seed)
    with started(settings, console) as settings:
        _train(settings, model, [board, own], steps=steps, seed=seed)
        has_curve = has_learned(settings, console, RUN_ID, title="Trackers", reward_min=REWARD_MIN)
        view = ViewClient(settings)
        rewards = read_curve(view, RUN_ID).rewards
        view.close()
        console.print(f"To see it: tensorboard --logdir {board.folder}")
        checks = {
            "TensorBoard's files have the log's curve": _in_tensorboard(settings.data_dir / "tensorboard") == rewards,
            f"{own.file.name} has it, too": own.rewards() == rewards,
        }
        return show_checks(console, checks) and has_curve


def _in_tensorboard(folder: Path) -> list[float]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events: Any = EventAccumulator(str(folder / RUN_ID), size_guidance={"tensors": 0})  # 0: all of them
    events.Reload()
    return [event.tensor_proto.double_val[0] for event in events.Tensors("reward/mean")]


def _train(settings: Settings, model: Path, trackers: list[Tracker], *, steps: int, seed: int) -> None:
    algorithm = VERL(
        model=model,
        warm_up=teach_the_form(seed),
        steps=steps,
        tasks_per_step=TASKS_PER_STEP,
        rollouts_per_task=SAMPLES,
        learning_rate=3e-3,
        weight_decay=0.0,
        epochs_per_step=4,
        clip_ratio_high=0.28,
        reward_target=REWARD_TARGET,
        sampling_parameters={"max_tokens": 1},
        threads=1,
    )
    trainer = Trainer(
        algorithm=algorithm,
        settings=settings,
        trainer_id=RUN_ID,
        runner_concurrency=TASKS_PER_STEP * SAMPLES,
        trackers=trackers,
        seed=seed,
    )
    trainer.fit(find, TASKS)


if __name__ == "__main__":
    program("trackers", run_trackers, steps=45)
