"""Rewards of the latest policy on the validation tasks."""

from __future__ import annotations

import time
from statistics import fmean

from lightstream.schemas.errors import TrainingError
from lightstream.schemas.packing import is_float32
from lightstream.schemas.records import StepOutcome

from .context import AlgorithmContext
from .generations import dump_generations
from .options import LoopOptions

__all__ = ["check_can_measure", "is_to_be_measured", "measure_last", "validates_before", "validation"]


def check_can_measure(options: LoopOptions, context: AlgorithmContext) -> None:
    """Refuse to measure alone where there is nothing to measure on.

    Raises:
        TrainingError: there are no validation tasks; nothing has changed.
    """
    if options.val_only and not context.val_dataset:
        raise TrainingError(
            "VERL(val_only=True) has no validation tasks.", next_step="Give fit a val_dataset, or leave val_only out."
        )


def validates_before(options: LoopOptions, context: AlgorithmContext, step: int) -> bool:
    """True if the policy is to be validated now: its rollouts are asked for once, and come once."""
    history, every = context.history, options.validate_every
    is_due = every > 0 and (step - 1) % every == 0
    return is_due and not history.discarded.get(step) and not history.measured


def is_to_be_measured(options: LoopOptions, context: AlgorithmContext) -> bool:
    """Whether the policy of the last step is to be validated, and was not."""
    return bool(options.validate_every or options.val_only) and not context.history.measured


def measure_last(options: LoopOptions, context: AlgorithmContext) -> None:
    """Validate the policy of the last step, once."""
    if not is_to_be_measured(options, context):
        return
    started = context.now()
    metrics = validation(options, context)
    if metrics:
        context.commit(
            context.last_step,
            [],
            started_unix_nano=started,
            metrics=metrics,
            outcome=StepOutcome.MEASURED,
            steps=options.steps,
        )


def validation(options: LoopOptions, context: AlgorithmContext) -> dict[str, float]:
    """Rewards on the validation tasks of the latest policy; a rollout without a reward counts as 0, and a task of which
    a rollout never ended is left out."""
    mark = time.perf_counter()
    groups = context.validate(context.last_step, samples=options.validation_samples)
    skipped = len(context.val_dataset or ()) - len(groups)
    metrics = {"validation/groups_skipped": float(skipped)} if skipped else {}
    if not groups:
        return metrics
    dump_generations(options.validation_data_dir, context.last_step, groups, context)
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
