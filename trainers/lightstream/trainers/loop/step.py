"""One step: from groups to what it does to the weights."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lightstream.schemas.records import StepOutcome, Trajectory

from ..algorithm import AlgorithmContext
from ..batch import BatchRows, build_arrays, rollout_score, select_rows
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


def select_batch(options: LoopOptions, groups: StepGroups, version: int, engine: Engine) -> StepBatch:
    """The batch of a step, while the policy is of ``version``. Silent groups are accounted for, and weigh nothing.

    Asks the engine for the KL to the reference, where it is part of a rollout's reward.
    """

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
    kl_metrics: dict[str, float] = {}
    if options.kl_reward_coefficient and rows.rows and not options.has_critic:
        kl, kl_metrics["actor/reward_kl_penalty"] = _kl_of_calls(rows, engine)
        rows = select([_without_kl(options, group, kl) for group in groups.kept])
    rows.excluded += silent.excluded
    rows.triplets_used |= silent.triplets_used
    rows.not_trained |= silent.not_trained
    rows.groups_without_signal += silent.groups_without_signal
    if rows.has_signal or (rows.rows and options.trains_every_row):
        outcome = StepOutcome.UPDATED
    else:
        outcome = StepOutcome.UNCHANGED if rows.rows else StepOutcome.DISCARDED
    metrics = batch_metrics(groups.kept + groups.silent, rows, version) | kl_metrics
    if groups.silent:
        metrics["groups/refilled"] = float(len(groups.silent))
    return StepBatch(rows, outcome, metrics)


def _kl_of_calls(rows: BatchRows, engine: Engine) -> tuple[Mapping[tuple[str, int], float], float]:
    """(rollout_id, call_index) -> the sum over the call's trained tokens; and the mean over all of these."""
    arrays = build_arrays(rows)
    kl = engine.kl_to_reference(arrays)
    sums: defaultdict[tuple[str, int], float] = defaultdict(float)
    starts = np.cumsum(arrays.response_lengths) - arrays.response_lengths
    for row, start in zip(rows.rows, starts.tolist(), strict=True):
        calls = {turn.start: turn.call_index for turn in row.segment.turns}
        for span in row.spans:
            first = start + span.start - row.prompt_length
            of_span = kl[first : first + span.end - span.start]
            sums[rows.rollout_ids[row.rollout], calls[span.start]] += float(of_span.sum())
    return sums, float(kl.sum() / arrays.response_mask.sum())


def _without_kl(options: LoopOptions, group: Group, kl: Mapping[tuple[str, int], float]) -> Group:
    """The group with what its tokens' KL costs taken from its rewards; a reward that is missing stays so."""

    def costs(trajectory: Trajectory) -> list[float]:
        calls = [(trajectory.rollout_id, triplet.call_index) for triplet in trajectory.triplets]
        return [options.kl_reward_coefficient * kl.get(call, 0.0) for call in calls]

    def penalised(trajectory: Trajectory) -> Trajectory:
        score = rollout_score(trajectory)
        triplets = [
            triplet.model_copy(update={"reward": None if triplet.reward is None else triplet.reward - cost})
            for triplet, cost in zip(trajectory.triplets, costs(trajectory), strict=True)
        ]
        reward = None if score is None else score - sum(costs(trajectory))
        return trajectory.model_copy(update={"reward": reward, "triplets": triplets})

    return Group(group.group_id, tuple(penalised(trajectory) for trajectory in group.trajectories))


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
