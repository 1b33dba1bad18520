"""One step: from groups to what it does to the weights."""

from __future__ import annotations

import time
from dataclasses import dataclass

from lightstream.schemas.records import StepOutcome

from ..algorithm import AlgorithmContext
from ..batch import BatchRows, build_arrays, select_rows
from ..groups import Group
from ..protocols import Engine
from .metrics import batch_metrics
from .options import LoopOptions
from .waves import StepGroups

__all__ = ["StepBatch", "select_batch", "update"]

LOGPROB_DIFF_EXPECTED_MAX = 1e-3
"""Between float32 on both sides about 1e-6 is seen; more than this means that the two do not run the same model."""


@dataclass(frozen=True, slots=True)
class StepBatch:
    """The groups and rows that a step trains on.

    Attributes:
        rows: the rows, and a reason for each call that has no weight.
        outcome: what the step does to the weights.
        metrics: of groups and rows.
    """

    rows: BatchRows
    outcome: StepOutcome
    metrics: dict[str, float]


def select_batch(options: LoopOptions, groups: StepGroups, version: int) -> StepBatch:
    """The batch of a step, while the policy is of ``version``. Silent groups are accounted for, and weigh nothing."""

    def select(chosen: list[Group]) -> BatchRows:
        return select_rows(
            chosen,
            scoring=options.scoring,
            oldest_policy_version=version - options.steps_ahead,
            prompt_tokens_max=options.prompt_tokens_max,
            response_tokens_max=options.response_tokens_max,
            overlong=options.overlong,
        )

    rows, silent = select(groups.kept), select(groups.silent)
    rows.excluded += silent.excluded
    rows.triplets_used |= silent.triplets_used
    rows.not_trained |= silent.not_trained
    rows.groups_without_signal += silent.groups_without_signal
    if rows.has_signal or (rows.rows and options.entropy_coefficient):
        outcome = StepOutcome.UPDATED
    else:
        outcome = StepOutcome.UNCHANGED if rows.rows else StepOutcome.DISCARDED
    metrics = batch_metrics(groups.kept + groups.silent, rows, version)
    if groups.silent:
        metrics["groups/refilled"] = float(len(groups.silent))
    return StepBatch(rows, outcome, metrics)


def update(engine: Engine, batch: StepBatch, context: AlgorithmContext, step: int, version: int) -> dict[str, float]:
    """Learn from a batch; says so where actor and model server do not agree."""
    arrays = build_arrays(batch.rows)
    mark = time.perf_counter()
    metrics = engine.update(arrays, policy_version=version, seed=(context.seed, step))
    seconds = time.perf_counter() - mark
    if metrics["logprob_diff_max"] > LOGPROB_DIFF_EXPECTED_MAX:
        context.progress.say(
            f"Step {step}: the log-probabilities of actor and model server differ by up to "
            f"{metrics['logprob_diff_max']:.2g} (expected: below {LOGPROB_DIFF_EXPECTED_MAX:g}). Do both run the "
            "same weights at the same temperature?"
        )
    return metrics | {
        "batch/rows": float(len(arrays)),
        "batch/tokens": float(arrays.tokens),
        "batch/response_tokens": float(arrays.response_mask.sum()),
        "seconds/update": seconds,
        "tokens_per_second/update": metrics["tokens/computed"] / seconds,
    }
