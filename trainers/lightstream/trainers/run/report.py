"""Report of a step, to the ledger and to observers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, pstdev
from typing import TypeAlias

from lightstream.runtime.clock import NANOS_PER_SECOND
from lightstream.schemas.packing import is_float32
from lightstream.schemas.records import StepOutcome

from ..rollouts.groups import Group

__all__ = ["StepObserver", "StepReport", "group_metrics"]


@dataclass(frozen=True, slots=True)
class StepReport:
    """One committed step.

    Attributes:
        step: 1, 2, …
        steps: how many steps the algorithm plans, 0 if it does not say.
        outcome: what it did to the weights.
        mean_reward: over the trajectories that have a reward; NaN if none has.
        logprob_diff_max: largest |actor - sampled| log-probability over all tokens that the current policy sampled;
            NaN where nothing was compared.
        rollouts: trajectories of complete groups.
        calls: LLM calls of those.
        rows: sequences trained on: calls that continue each other are one.
        tokens: tokens of those sequences.
        seconds: from the beginning of the step to its commit.
        resources_id: what the next rollouts use.
        metrics: everything that went into the ledger.
    """

    step: int
    steps: int
    outcome: StepOutcome
    mean_reward: float
    logprob_diff_max: float
    rollouts: int
    calls: int
    rows: int
    tokens: int
    seconds: float
    resources_id: str | None
    metrics: dict[str, float] = field(default_factory=dict[str, float])


StepObserver: TypeAlias = Callable[[StepReport], None]
"""Called after each commit, in the trainer's thread: keep it short."""


def group_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Reward statistics of a step's groups. ``reward/mean`` is absent where no trajectory has a reward."""
    trajectories = [trajectory for group in groups for trajectory in group.sampled]
    rewards = [t.reward for t in trajectories if t.reward is not None and is_float32(t.reward)]
    uniform = sum(
        len({t.reward for t in group.sampled}) == 1 and group.sampled[0].reward is not None
        for group in groups
        if len(group.sampled) > 1
    )
    metrics = {
        "groups": float(len(groups)),
        "groups/uniform_reward": float(uniform),
        "rollouts": float(len(trajectories)),
        "rollouts/without_reward": float(len(trajectories) - len(rewards)),
        "rollouts/failed": float(sum(t.rollout_status.value != "succeeded" for t in trajectories)),
    }
    if trajectories:
        seconds = fmean(t.closed_unix_nano - t.opened_unix_nano for t in trajectories) / NANOS_PER_SECOND
        metrics["seconds/rollout"] = seconds
    if rewards:
        metrics |= {
            "reward/mean": fmean(rewards),
            "reward/std": pstdev(rewards),
            "reward/min": min(rewards),
            "reward/max": max(rewards),
        }
    return metrics
