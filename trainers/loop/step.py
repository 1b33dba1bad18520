"""One step: from groups to the change of the weights."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from lightstream.schemas.records import StepOutcome, Trajectory

from ..rollouts.batch import ALL, BatchRows, OwnPolicy, build_arrays, rollout_score, select_rows, split_groups
from ..rollouts.groups import Group
from ..run.run import Run
from .metrics import batch_metrics, policy_metrics
from .options import LoopOptions
from .protocols import Engine, NothingLearned
from .waves import StepGroups

LOGPROB_DIFF_EXPECTED_MAX = 1e-3
"""Between float32 on both sides about 1e-6 is seen; more than this is said."""

RESTATED_MIN = 1.3
"""Computed tokens by distinct ones, from which on it is said."""


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


def select_batch(
    options: LoopOptions,
    groups: StepGroups,
    version: int,
    engine: Engine,
    own: Callable[[str], OwnPolicy] | None = None,
) -> StepBatch:
    """The batch of a step, while the policy is of ``version``. Silent groups are accounted for, and weigh nothing.

    Asks the engine for the KL to the reference, where it is part of a rollout's reward.

    Args:
        own: by the policy's name, what its own calls are known by; ``None``: every call is taken for its own.
    """

    def select(policy: str, chosen: list[Group]) -> BatchRows:
        return select_rows(
            chosen,
            scoring=options.scoring,
            own=None if own is None else own(policy),
            prompt_tokens_max=options.prompt_tokens_max,
            response_tokens_max=options.response_tokens_max,
            overlong=options.overlong,
            images=engine.images,
        )

    kl_metrics: dict[str, float] = {}

    def select_with_kl(policy: str, chosen: list[Group]) -> BatchRows:
        rows = select(policy, chosen)
        if options.kl_reward_coefficient and rows.rows and not options.has_critic:
            metric = f"policy/{policy}/actor/reward_kl_penalty" if policy else "actor/reward_kl_penalty"
            kl, kl_metrics[metric] = _kl_of_calls(rows, engine)
            rows = select(policy, [_without_kl(options, group, kl) for group in chosen])
        return rows

    kept, silent = (split_groups(of_step, options.policies) for of_step in (groups.kept, groups.silent))
    parts = {name: select_with_kl(name, of_policy) for name, of_policy in kept.groups.items()}
    rows = kept.account(parts)
    of_policies = policy_metrics(kept, parts)
    rows.add_reasons(silent.account({name: select(name, of_policy) for name, of_policy in silent.groups.items()}))
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


@dataclass(frozen=True, slots=True)
class Update:
    """The engine's result for a batch.

    Attributes:
        metrics: of the update; where nothing was learned, what was measured until then.
        refused: the policies that learned nothing, and why.
        learned: whether any policy learned.
    """

    metrics: dict[str, float]
    refused: dict[str, NothingLearned]
    learned: bool

    @property
    def cause(self) -> str:
        """Why policies learned nothing, in words; empty where each did."""
        reasons = {name: str(refused) for name, refused in self.refused.items()}
        return "; ".join(f"policy {name!r}: {cause}" if name != ALL else cause for name, cause in reasons.items())


def update(
    engine: Engine,
    batch: StepBatch,
    run: Run,
    step: int,
    version: int,
    *,
    gap_max: float = math.inf,
    sampled_elsewhere: bool = False,
) -> Update:
    """Have each policy learn from its part of a batch; says so where actor and model server do not agree.

    The metrics of several policies are by name (``policy/<name>/…``); what is added up of them has none. Calls of a
    policy that learned nothing are accounted for by reason in ``batch.rows``.

    Args:
        gap_max: see :class:`~lightstream.trainers.loop.protocols.Engine`; a step that is made again was committed
            already.
        sampled_elsewhere: another policy sampled the rollouts, so a gap is nothing odd.
    """
    found: dict[str, dict[str, float]] = {}
    refused: dict[str, NothingLearned] = {}
    for name, rows in batch.parts.items():
        try:
            found[name] = _update(engine, rows, name, run, step, version, gap_max)
        except NothingLearned as outcome:
            refused[name] = outcome
            batch.rows.refuse(rows, outcome.reason)
    _say_what_is_odd(run, step, found, sampled_elsewhere=sampled_elsewhere)
    metrics = _joined(found | {name: outcome.metrics for name, outcome in refused.items()})
    return Update(metrics, refused, learned=bool(found))


def _say_what_is_odd(run: Run, step: int, found: Mapping[str, Mapping[str, float]], *, sampled_elsewhere: bool) -> None:
    apart = max((metrics.get("logprob_diff_max", math.nan) for metrics in found.values()), default=math.nan)
    if apart > LOGPROB_DIFF_EXPECTED_MAX and not sampled_elsewhere:
        run.progress.say(
            f"Step {step}: the log-probabilities of actor and model server differ by up to "
            f"{apart:.2g} (expected: below {LOGPROB_DIFF_EXPECTED_MAX:g}). Do both run the "
            "same weights at the same temperature?"
        )
    skipped = int(sum(metrics.get("updates/not_finite", 0.0) for metrics in found.values()))
    if skipped:
        run.progress.say(
            f"Step {step}: the gradient of {skipped} mini-batches was not finite, and changed nothing. Are there huge "
            "rewards?"
        )
    computed, distinct = (
        sum(metrics.get(name, 0.0) for metrics in found.values()) for name in ("tokens/computed", "tokens/distinct")
    )
    if computed > RESTATED_MIN * distinct:
        run.progress.hint(
            f"Step {step} computes {computed:,.0f} tokens, of which {distinct:,.0f} are distinct: many calls do not "
            "go on from the one before. Does the chat template take reasoning out of earlier answers, or the agent "
            "rewrite its history? The page of a rollout shows where each row begins, and why."
        )


def _joined(found: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The metrics of an update, of each policy's."""
    if list(found) == [ALL]:
        return dict(found[ALL])
    total = {name: sum(metrics.get(name, 0.0) for metrics in found.values()) for name in _ADDED_UP}
    computed = sum(metrics.get("tokens/computed", 0.0) for metrics in found.values())
    apart = [metrics["logprob_diff_max"] for metrics in found.values() if "logprob_diff_max" in metrics]
    return {
        **total,
        "tokens_per_second/update": computed / total["seconds/update"] if total["seconds/update"] else 0.0,
        "logprob_diff_max": max(apart, default=math.nan),
        **{f"policy/{name}/{key}": value for name, metrics in found.items() for key, value in metrics.items()},
    }


_ADDED_UP = ("batch/rows", "batch/tokens", "batch/response_tokens", "seconds/update")


def _update(
    engine: Engine,
    rows: BatchRows,
    policy: str,
    run: Run,
    step: int,
    version: int,
    gap_max: float,
) -> dict[str, float]:
    arrays = build_arrays(rows)
    mark = time.perf_counter()
    metrics = engine.update(
        arrays, policy_version=version, seed=(run.seed, step), policy=policy, step=step, gap_max=gap_max
    )
    seconds = time.perf_counter() - mark
    return metrics | {
        "batch/rows": float(len(arrays)),
        "batch/tokens": float(arrays.tokens),
        "batch/response_tokens": float(arrays.response_mask.sum()),
        "seconds/update": seconds,
        "tokens_per_second/update": metrics["tokens/computed"] / seconds,
    }
