"""``lightstream fork``: a run's training again from one step on, with other rewards or without some of its rollouts."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError, TrainingError
from lightstream.schemas.records import TrainingStep, Trajectory

from .formats import Format
from .load import needs
from .replay import attempts_where

SHOWN = ("reward/mean", "actor/pg_loss", "actor/entropy")
"""Metrics of the table, of each policy; JSON has all."""

console = Console(highlight=False, markup=False)
notes = Console(highlight=False, markup=False, stderr=True)


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
        SettingsError: nothing would change, or the reward rule fails too often.
        TrainingError: the run cannot be made again, or not with other rewards.
        QueryError: ``without`` is no condition on the view ``trajectories``.
        ServiceUnavailableError: Kafka does not answer; or, with ``without``, the view.
    """
    with needs("train", "view"):
        from lightstream.trainers.algorithms.replaying import replay_training
        from lightstream.trainers.run.progress import Progress, sparkline
    if reward is None and without is None:
        raise SettingsError(
            "there is nothing to change.", next_step="Give --reward, --without or both; or use `lightstream replay`."
        )
    folder = out or settings.data_dir.absolute() / "forks" / run_id
    progress = Progress(partial(notes.print, soft_wrap=True))
    fork = partial(_change, settings, run_id, reward, without, errors_max)
    result = replay_training(settings, run_id, folder, at=at, fork=fork, progress=progress)
    forked = [step for step in result.steps if step > at]
    if output is Format.JSON:
        steps = [
            {"step": step, "committed": _finite(result.committed[step]), "fork": _finite(result.metrics[step])}
            for step in forked
        ]
        answer = {"run_id": run_id, "at": at, "weights": str(result.weights), "steps": steps}
        sys.stdout.write(json.dumps(answer) + "\n")
        return
    names = sorted({name for step in forked for name in result.committed[step] if _is_shown(name)}, key=_place)
    curves = {
        name: [[found[step].get(name, math.nan) for step in forked] for found in (result.committed, result.metrics)]
        for name in names
    }
    console.print(_table(run_id, forked, curves))
    for name, (committed, fork_) in curves.items():
        console.print(f"{name}: committed {_drawn(sparkline, committed)}  fork {_drawn(sparkline, fork_)}")
    console.print(f"The fork's weights are in {result.weights}.", soft_wrap=True)
    is_model = any(result.weights.glob("*model*.safetensors"))
    users = "VERL as its model" if is_model else "AgentPolicy as its adapter, a policy's folder each"
    console.print(f"To train on from them, give that folder to {users}.", soft_wrap=True)


def _is_shown(metric: str) -> bool:
    """Whether it is one of :data:`SHOWN`, of a policy too."""
    return metric in SHOWN or (metric.startswith("policy/") and metric.split("/", 2)[2] in SHOWN)


def _place(metric: str) -> tuple[int, str]:
    own = metric.split("/", 2)[2] if metric.startswith("policy/") else metric
    return SHOWN.index(own), metric


def _change(
    settings: Settings,
    run_id: str,
    reward: str | None,
    without: str | None,
    errors_max: int,
    steps: Sequence[TrainingStep],
) -> Callable[[Trajectory], Trajectory | None]:
    """How the trajectories of these steps change. All that can be wrong with that is said before a step is made."""
    from lightstream.stream_processors.replay import RewardsAgain, load_reward_rule
    from lightstream.trainers.loop.recovery import consumed_in

    consumed = frozenset((rollout, attempt) for step in steps for rollout, attempt, _ in consumed_in(step))
    left_out = frozenset[tuple[str, str]]()
    if without is not None:
        left_out = attempts_where(settings, without, run_id) & consumed
        _check_view_has(settings, run_id, consumed)
        notes.print(f"{len(left_out):,} of {len(consumed):,} attempts are left out.")
        if not left_out and reward is None:
            raise SettingsError(
                f"--without holds for no attempt of run {run_id!r} that steps {steps[0].step} to {steps[-1].step} "
                "consumed.",
                next_step="`lightstream sql 'FROM trajectories'` shows them.",
            )
    if reward is None:
        return lambda trajectory: None if (trajectory.rollout_id, trajectory.attempt_id) in left_out else trajectory
    _check_rewards_count(run_id, steps)
    rewarded = RewardsAgain(settings, run_id, load_reward_rule(reward), consumed - left_out, errors_max)
    if rewarded.errors.count:
        notes.print(
            f"The rule failed in {rewarded.errors.count} attempts, whose rewards are missing: {rewarded.errors.first}",
            soft_wrap=True,
        )

    def change(trajectory: Trajectory) -> Trajectory | None:
        return None if (trajectory.rollout_id, trajectory.attempt_id) in left_out else rewarded(trajectory)

    return change


def _check_view_has(settings: Settings, run_id: str, consumed: frozenset[tuple[str, str]]) -> None:
    """Refuse a condition that could not be asked of all attempts.

    Raises:
        SettingsError: the view lacks some.
    """
    if lacking := consumed - attempts_where(settings, "true", run_id):
        raise SettingsError(
            f"the view lacks {len(lacking)} of {len(consumed)} attempts of run {run_id!r}, such as "
            f"{min(lacking)[1]!r}, so --without cannot tell whether to leave them out.",
            next_step="Wait until `lightstream status` shows no lag; or begin after the steps that have left the view.",
        )


def _check_rewards_count(run_id: str, steps: Sequence[TrainingStep]) -> None:
    """Refuse a reward rule where trainings take their scores from elsewhere.

    Raises:
        TrainingError: a step has several rewards, or a model of them.
    """
    from lightstream.trainers import VERL
    from lightstream.trainers.engines.verl.config import options_of
    from lightstream.trainers.run.identity import OPTIONS

    for options_json in {step.made_with[OPTIONS] for step in steps}:
        options = VERL(**options_of(options_json))
        for name in ("reward_dimensions", "reward_model"):
            if getattr(options, name):
                raise TrainingError(
                    f"run {run_id!r} has {name}, from which its scores are made, so --reward would have no effect.",
                    next_step="Fork it with --without, or train with other options.",
                )


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
