"""Which LLM calls of a step's groups are trained on, and why the others are not."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from lightstream.schemas.packing import TOKEN_BYTES
from lightstream.schemas.records import Trajectory, TripletRecord

from ..groups import Group

__all__ = ["BatchRows", "Exclusion", "Row", "select_rows"]


class Exclusion(StrEnum):
    """Why a trajectory, or a call of it, is not in the batch."""

    NO_CALLS = "no_calls"
    """The trajectory has no triplet: the attempt failed early, or its calls were dropped (each with its reason)."""
    NO_REWARD = "no_reward"
    """Nothing says how good the call was. Missing is not 0."""
    NO_LOGPROBS = "no_logprobs"
    """The model server did not say how likely the tokens were."""
    EMPTY = "empty"
    """Prompt or response has no token."""
    MISALIGNED = "misaligned"
    """Ids, log-probabilities and mask differ in length."""
    TOO_LONG = "too_long"
    """Over the limits of the batch."""
    STALE = "stale"
    """Sampled by a policy older than the bound."""


@dataclass(frozen=True, slots=True)
class Row:
    """One LLM call to train on. ``reward`` is finite."""

    group_id: str
    rollout_id: str
    attempt_id: str
    triplet: TripletRecord
    reward: float

    @property
    def prompt_tokens(self) -> int:
        return len(self.triplet.prompt_token_ids) // TOKEN_BYTES

    @property
    def response_tokens(self) -> int:
        return len(self.triplet.response_token_ids) // TOKEN_BYTES


@dataclass(slots=True)
class BatchRows:
    """What a step trains on.

    Attributes:
        rows: in the order of groups, rollouts and calls.
        excluded: reason -> how many calls (for ``no_calls``: trajectories).
        triplets_used: (rollout_id, attempt_id) -> number of its rows; 0 where nothing of it could be learned from.
    """

    rows: list[Row] = field(default_factory=list[Row])
    excluded: Counter[Exclusion] = field(default_factory=Counter[Exclusion])
    triplets_used: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])


def select_rows(
    groups: Iterable[Group],
    *,
    oldest_policy_version: int | None = None,
    prompt_tokens_max: int | None = None,
    response_tokens_max: int | None = None,
) -> BatchRows:
    """Every call of ``groups`` that can be trained on; the rest is counted by reason.

    Args:
        groups: the groups of a step.
        oldest_policy_version: calls of older policies are left out; calls that do not say theirs are kept.
        prompt_tokens_max, response_tokens_max: longer calls are left out.
    """
    selected = BatchRows()
    for group in groups:
        for trajectory in group.trajectories:
            used = 0
            if not trajectory.triplets:
                selected.excluded[Exclusion.NO_CALLS] += 1
            for triplet in trajectory.triplets:
                reason = _reason_against(triplet, oldest_policy_version, prompt_tokens_max, response_tokens_max)
                if reason is None:
                    selected.rows.append(_row(group.group_id, trajectory, triplet))
                    used += 1
                else:
                    selected.excluded[reason] += 1
            selected.triplets_used[trajectory.rollout_id, trajectory.attempt_id] = used
    return selected


def _row(group_id: str, trajectory: Trajectory, triplet: TripletRecord) -> Row:
    return Row(group_id, trajectory.rollout_id, trajectory.attempt_id, triplet, triplet.reward or 0.0)


def _reason_against(
    triplet: TripletRecord, oldest: int | None, prompt_max: int | None, response_max: int | None
) -> Exclusion | None:
    if triplet.reward is None or not math.isfinite(triplet.reward):
        return Exclusion.NO_REWARD
    prompt, prompt_rest = divmod(len(triplet.prompt_token_ids), TOKEN_BYTES)
    response, response_rest = divmod(len(triplet.response_token_ids), TOKEN_BYTES)
    if triplet.response_logprobs is None:
        return Exclusion.NO_LOGPROBS
    if prompt_rest or response_rest or len(triplet.response_logprobs) != TOKEN_BYTES * response:
        return Exclusion.MISALIGNED
    if len(triplet.response_mask) != response:
        return Exclusion.MISALIGNED
    if not prompt or not response:
        return Exclusion.EMPTY
    if (prompt_max is not None and prompt > prompt_max) or (response_max is not None and response > response_max):
        return Exclusion.TOO_LONG
    if oldest is not None and triplet.policy_version is not None and triplet.policy_version < oldest:
        return Exclusion.STALE
    return None
