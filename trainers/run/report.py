"""Report of a step, to the ledger and to observers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from lightstream.schemas.records import StepOutcome


@dataclass(frozen=True, slots=True)
class StepReport:
    """One committed step.

    Attributes:
        step: 1, 2, …
        steps: how many steps the algorithm plans, 0 if it does not say.
        outcome: what it did to the weights.
        mean_reward: over the trajectories that have a reward; NaN if none has.
        logprob_diff_max: largest difference between actor's and sampled log-probability, over all tokens that the
            current policy sampled; NaN where nothing was compared.
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
