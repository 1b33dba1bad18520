"""One step: from groups to what it does to the weights."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lightstream.schemas.records import StepOutcome, Trajectory

from ..algorithm import AlgorithmContext
from ..batch import ALL, BatchRows, build_arrays, rollout_score, select_rows, split_groups
from ..groups import Group
from ..protocols import Engine
from .metrics import batch_metrics, policy_metrics
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
        parts: the rows of each policy that learns from them.
        outcome: what the step does to the weights.
        metrics: of groups and rows.
    """

    rows: BatchRows
    parts: dict[str, BatchRows]
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
            images=engine.images,
        )

    kl_metrics: dict[str, float] = {}

    def select_with_kl(policy: str, chosen: list[Group]) -> BatchRows:
        rows = select(chosen)
        if options.kl_reward_coefficient and rows.rows and not options.has_critic:
            metric = f"policy/{policy}/actor/reward_kl_penalty" if policy else "actor/reward_kl_penalty"
            kl, kl_metrics[metric] = _kl_of_calls(rows, engine)
            rows = select([_without_kl(options, group, kl) for group in chosen])
        return rows

    kept, silent = (split_groups(of_step, options.policies) for of_step in (groups.kept, groups.silent))
    parts = {name: select_with_kl(name, of_policy) for name, of_policy in kept.groups.items()}
    rows = kept.account(parts)
    of_policies = policy_metrics(kept, parts)
    rows.add_reasons(silent.account({name: select(of_policy) for name, of_policy in silent.groups.items()}))
    learning = {name: p for name, p in parts.items() if p.has_signal or (p.rows and options.trains_every_row)}
    outcome = StepOutcome.UPDATED if learning else StepOutcome.UNCHANGED if rows.rows else StepOutcome.DISCARDED
    metrics = batch_metrics(groups.kept + groups.silent, rows, version) | kl_metrics | of_policies
    if groups.silent:
        metrics["groups/refilled"] = float(len(groups.silent))
    return StepBatch(rows, learning, outcome, metrics)


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
    """Have each policy learn from its part of a batch; says so where actor and model server do not agree.

    The metrics of several policies are by name (``policy/<name>/…``); what is added up of them has none.
    """
    found = {name: _update(engine, rows, name, context, step, version) for name, rows in batch.parts.items()}
    apart = max(metrics["logprob_diff_max"] for metrics in found.values())
    if apart > LOGPROB_DIFF_EXPECTED_MAX:
        context.progress.say(
            f"Step {step}: the log-probabilities of actor and model server differ by up to "
            f"{apart:.2g} (expected: below {LOGPROB_DIFF_EXPECTED_MAX:g}). Do both run the "
            "same weights at the same temperature?"
        )
    if list(found) == [ALL]:
        return found[ALL]
    total = {name: sum(metrics[name] for metrics in found.values()) for name in _ADDED_UP}
    total["tokens_per_second/update"] = sum(m["tokens/computed"] for m in found.values()) / total["seconds/update"]
    return {
        **total,
        "logprob_diff_max": apart,
        **{f"policy/{name}/{key}": value for name, metrics in found.items() for key, value in metrics.items()},
    }


_ADDED_UP = ("batch/rows", "batch/tokens", "batch/response_tokens", "seconds/update")


def _update(
    engine: Engine, rows: BatchRows, policy: str, context: AlgorithmContext, step: int, version: int
) -> dict[str, float]:
    arrays = build_arrays(rows)
    mark = time.perf_counter()
    metrics = engine.update(arrays, policy_version=version, seed=(context.seed, step), policy=policy)
    seconds = time.perf_counter() - mark
    return metrics | {
        "batch/rows": float(len(arrays)),
        "batch/tokens": float(arrays.tokens),
        "batch/response_tokens": float(arrays.response_mask.sum()),
        "seconds/update": seconds,
        "tokens_per_second/update": metrics["tokens/computed"] / seconds,
    }
