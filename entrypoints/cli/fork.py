"""``lightstream fork``: a run's training again from one step on, with other rewards or without some of its rollouts."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError
from lightstream.schemas.records import Trajectory

from .formats import Format
from .load import needs
from .replay import attempts_where

SHOWN = ("reward/mean", "actor/pg_loss", "actor/entropy")
"""Metrics of the table; JSON has all."""

console = Console(highlight=False)
notes = Console(highlight=False, stderr=True)


def run_fork(
    settings: Settings,
    run_id: str,
    at: int,
    reward: str | None,
    without: str | None,
    errors_max: int,
    out: Path | None,
    output: Format,
) -> None:
    """Make the steps after ``at`` from changed trajectories, and print them beside the committed ones.

    Raises:
        SettingsError: nothing is to be changed, or the reward rule fails too often.
        TrainingError: the run cannot be made again.
        QueryError: ``without`` is no condition on the view ``trajectories``.
        ServiceUnavailableError: Kafka does not answer, or with ``without`` the view.
    """
    with needs("train", "view"):
        from lightstream.trainers.algorithms.replaying import replay_training
        from lightstream.trainers.run.progress import Progress, sparkline
    change = _change(settings, run_id, reward, without, errors_max)
    folder = out or settings.data_dir.absolute() / "forks" / run_id
    progress = Progress(partial(notes.print, soft_wrap=True))
    result = replay_training(settings, run_id, folder, at=at, change=change, progress=progress)
    forked = [step for step in result.steps if step > at]
    if output is Format.JSON:
        steps = [
            {"step": step, "committed": _finite(result.committed[step]), "fork": _finite(result.metrics[step])}
            for step in forked
        ]
        answer = {"run_id": run_id, "at": at, "weights": str(result.weights), "steps": steps}
        sys.stdout.write(json.dumps(answer) + "\n")
        return
    curves = {
        name: [
            [of_steps[step].get(name, math.nan) for step in forked] for of_steps in (result.committed, result.metrics)
        ]
        for name in SHOWN
    }
    console.print(_table(run_id, forked, curves))
    for name, (committed, fork) in curves.items():
        if any(map(math.isfinite, committed + fork)):
            console.print(f"{name:<14} committed {_drawn(sparkline, committed)}  fork {_drawn(sparkline, fork)}")
    console.print(f"The fork's weights are in {result.weights}.", soft_wrap=True)
    console.print("To train on from them, give that folder to VERL as its model.", soft_wrap=True)


def _change(
    settings: Settings, run_id: str, reward: str | None, without: str | None, errors_max: int
) -> Callable[[Trajectory], Trajectory | None]:
    from lightstream.stream_processors.replay import RewardsAgain, load_reward_rule

    if reward is None and without is None:
        raise SettingsError(
            "there is nothing to change.", next_step="Give --reward, --without or both; or use `lightstream replay`."
        )
    left_out = frozenset[tuple[str, str]]() if without is None else attempts_where(settings, without, run_id)
    if without is not None:
        notes.print(f"{len(left_out):,} attempts of run {run_id!r} are left out.")
    rewarded = None if reward is None else RewardsAgain(settings, run_id, load_reward_rule(reward), errors_max)
    if rewarded is not None and rewarded.errors.count:
        notes.print(
            f"The rule failed in {rewarded.errors.count} attempts, whose rewards are missing: {rewarded.errors.first}",
            soft_wrap=True,
        )

    def change(trajectory: Trajectory) -> Trajectory | None:
        if (trajectory.rollout_id, trajectory.attempt_id) in left_out:
            return None
        return trajectory if rewarded is None else rewarded(trajectory)

    return change


def _table(run_id: str, steps: list[int], curves: dict[str, list[list[float]]]) -> Table:
    table = Table(title=f"Run {run_id}: committed, and as a fork")
    table.add_column("step", justify="right")
    for name in curves:
        table.add_column(name, justify="right")
        table.add_column("fork", justify="right")
    for index, step in enumerate(steps):
        row = [values[index] for pair in curves.values() for values in pair]
        table.add_row(str(step), *(f"{value:.4g}" if math.isfinite(value) else "-" for value in row))
    return table


def _drawn(draw: Callable[[list[float]], str], values: list[float]) -> str:
    finite = [value for value in values if math.isfinite(value)]
    return draw(finite) if finite else "-"


def _finite(metrics: dict[str, float]) -> dict[str, float | None]:
    """JSON has no NaN."""
    return {name: value if math.isfinite(value) else None for name, value in metrics.items()}
