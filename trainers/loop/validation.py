"""Rewards of the latest policy on the validation tasks."""

from __future__ import annotations

import time
from statistics import fmean

from lightstream.schemas.errors import TrainingError
from lightstream.schemas.packing import is_float32
from lightstream.schemas.records import StepOutcome

from ..rollouts.rollouts import Rollouts
from ..run.run import Run
from .generations import dump_generations
from .options import LoopOptions
from .steps import Steps


def check_can_measure(options: LoopOptions, rollouts: Rollouts) -> None:
    """Refuse to measure alone where there is nothing to measure on.

    Raises:
        TrainingError: there are no validation tasks; nothing has changed.
    """
    if options.val_only and not rollouts.val_dataset:
        raise TrainingError(
            "VERL(val_only=True) has no validation tasks.", next_step="Give fit a val_dataset, or leave val_only out."
        )


def validates_before(options: LoopOptions, run: Run, step: int) -> bool:
    """Whether to validate the policy now. Its rollouts are enqueued once, and collected once."""
    history, every = run.history, options.validate_every
    is_due = every > 0 and (step - 1) % every == 0
    return is_due and not history.discarded.get(step) and not history.measured


def is_to_be_measured(options: LoopOptions, run: Run) -> bool:
    """Whether the policy of the last step is to be validated, and was not."""
    return bool(options.validate_every or options.val_only) and not run.history.measured


def measure_last(options: LoopOptions, steps: Steps) -> None:
    """Validate the policy of the last step, once."""
    run = steps.run
    if not is_to_be_measured(options, run):
        return
    started = run.now()
    metrics = validation(options, steps.rollouts)
    if metrics:
        steps.commit(
            run.last_step,
            [],
            started_unix_nano=started,
            metrics=metrics,
            outcome=StepOutcome.MEASURED,
            steps=options.steps,
        )


def validation(options: LoopOptions, rollouts: Rollouts) -> dict[str, float]:
    """Rewards of the latest policy on the validation tasks.

    A rollout without a reward counts as 0; a task with a rollout that never ended is left out.
    """
    mark = time.perf_counter()
    last_step = rollouts.run.last_step
    groups = rollouts.validate(last_step, samples=options.validation_samples)
    skipped = len(rollouts.val_dataset or ()) - len(groups)
    metrics = {"validation/groups_skipped": float(skipped)} if skipped else {}
    if not groups:
        return metrics
    dump_generations(options.validation_data_dir, last_step, groups, rollouts.run)
    rewards = [[_finite(t.reward) for t in group.trajectories] for group in groups]
    return metrics | {
        "validation/reward_mean": fmean(reward for group in rewards for reward in group),
        "validation/reward_best": fmean(max(group) for group in rewards),
        f"validation/pass@{options.validation_samples}": fmean(max(group) >= 1.0 for group in rewards),
        "validation/tasks": float(len(groups)),
        "validation/samples": float(options.validation_samples),
        "seconds/validation": time.perf_counter() - mark,
    }


def _finite(reward: float | None) -> float:
    return reward if reward is not None and is_float32(reward) else 0.0
