"""Selects the rows of a step, and counts the calls that are not in them by reason.

A row is a segment: the calls of a rollout that continue each other, merged, so that tokens they share are computed
once. Each token that the policy sampled is trained on in exactly one row, or its call is counted under a reason.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, TypeAlias

import numpy as np

from lightstream.schemas.packing import TOKEN_BYTES, is_float32
from lightstream.schemas.records import RolloutMode, Trajectory, TripletRecord
from lightstream.stream_processors.core.segments import Segment, merge_segments

from ..groups import Group
from .advantages import call_advantages
from .exclusions import Exclusion
from .own_policy import OwnPolicy
from .scores import Scoring, rollout_score

Overlong: TypeAlias = Literal["exclude", "truncate"]

CUT_OFF = "length"
"""Finish reason of an answer that ended at the most tokens it was allowed."""


class ImageCheck(Protocol):
    """A model's view of a call with images."""

    def fault(self, triplet: TripletRecord, images: Sequence[bytes]) -> Exclusion | None:
        """The reason why the model cannot be shown a call again; ``None``: it can.

        Args:
            triplet: the call.
            images: files, in the order of its prompt.
        """
        ...


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens ``[start, end)`` of a segment that are trained on with one advantage: the response of a call.

    Where there is a critic, the advantage is the reward.
    """

    start: int
    end: int
    advantage: float
    call_index: int


@dataclass(frozen=True, slots=True)
class Row:
    """A segment to train on, up to its last trained token.

    Attributes:
        rollout: number of its rollout in the batch, counted over those that have a row.
        segment: the tokens.
        spans: what is trained on, in order; at least one.
        images: files of the images before the last trained token, in their order.
    """

    rollout: int
    segment: Segment
    spans: tuple[Span, ...]
    images: tuple[bytes, ...] = ()

    @property
    def prompt_length(self) -> int:
        """Tokens before the first one that is trained on."""
        return self.spans[0].start

    @property
    def length(self) -> int:
        """Tokens in all."""
        return self.spans[-1].end

    @property
    def has_signal(self) -> bool:
        """True if any token has an advantage other than zero."""
        return any(span.advantage for span in self.spans)


@dataclass(slots=True)
class BatchRows:
    """The rows of a step, and the reasons of all that is not in them.

    Attributes:
        rows: in the order of groups and rollouts, those of a rollout by their tokens; rows without a signal (zero
            advantage) included.
        scores: of each rollout that has a row; its number is the index here.
        groups: group id of each of those rollouts.
        rollout_ids: their own.
        excluded: reason -> how many calls have no weight (for ``no_calls``: rollouts).
        triplets_used: (rollout_id, attempt_id) -> how many of its calls have a weight.
        not_trained: (rollout_id, attempt_id) -> reason -> how many of its calls have none.
        groups_without_signal: groups none of whose calls has an advantage other than zero.
        rollouts_asked: rollouts that were asked for, the greedy ones left out: what losses are divided by.
        sequences_asked: the segments of these rollouts, of the policy's own calls; at least one of each rollout.
    """

    rows: list[Row] = field(default_factory=list[Row])
    scores: list[float] = field(default_factory=list[float])
    groups: list[str] = field(default_factory=list[str])
    rollout_ids: list[str] = field(default_factory=list[str])
    excluded: Counter[Exclusion] = field(default_factory=Counter[Exclusion])
    triplets_used: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    not_trained: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict[tuple[str, str], dict[str, int]])
    groups_without_signal: int = 0
    rollouts_asked: int = 0
    sequences_asked: int = 0

    @property
    def has_signal(self) -> bool:
        """True if any row would move the weights."""
        return any(row.has_signal for row in self.rows)

    def add(self, other: BatchRows) -> None:
        """Take in the rows and the reasons of another batch, which may have other calls of the same rollouts."""
        first = len(self.scores)
        self.rows += [replace(row, rollout=first + row.rollout) for row in other.rows]
        self.scores += other.scores
        self.groups += other.groups
        self.rollout_ids += other.rollout_ids
        self.rollouts_asked += other.rollouts_asked
        self.sequences_asked += other.sequences_asked
        self.add_reasons(other)

    def refuse(self, part: BatchRows, reason: Exclusion) -> None:
        """Account for the calls of ``part``, which are among these, as not learned from after all."""
        for key, used in part.triplets_used.items():
            if used:
                self.excluded[reason] += used
                self.not_trained[key] = {**self.not_trained.get(key, {}), reason.value: used}
                self.triplets_used[key] -= used

    def add_reasons(self, other: BatchRows) -> None:
        """Take in the fates of another batch's calls, without its rows."""
        self.excluded += other.excluded
        for key, used in other.triplets_used.items():
            self.triplets_used[key] = self.triplets_used.get(key, 0) + used
        for key, reasons in other.not_trained.items():
            self.not_trained[key] = dict(Counter(self.not_trained.get(key, {})) + Counter(reasons))
        self.groups_without_signal += other.groups_without_signal


@dataclass(frozen=True, slots=True)
class _Limits:
    own: OwnPolicy | None
    prompt_tokens_max: int | None
    response_tokens_max: int | None
    overlong: Overlong
    needs_logprobs: bool
    images: ImageCheck | None


def select_rows(
    groups: Iterable[Group],
    *,
    scoring: Scoring | None = None,
    own: OwnPolicy | None = None,
    prompt_tokens_max: int | None = None,
    response_tokens_max: int | None = None,
    overlong: Overlong = "exclude",
    needs_logprobs: bool = True,
    images: ImageCheck | None = None,
) -> BatchRows:
    """The rows of ``groups``, and a reason for every call that has no weight.

    Args:
        groups: the groups of a step, each whole.
        scoring: how rewards become advantages; ``None``: GRPO.
        own: the policy that is trained: calls that are not its own are left out, see :class:`OwnPolicy`. ``None``: all
            are taken, whoever sampled them.
        prompt_tokens_max: calls with a longer prompt are left out.
        response_tokens_max: longer responses, and those that were cut off (finish reason ``length``), are left out
            (``exclude``), or trained on up to this token (``truncate``).
        overlong: which of the two.
        needs_logprobs: calls without log-probabilities are left out.
        images: of the model, where it takes images: calls that it cannot be shown again are left out.
    """
    limits = _Limits(own, prompt_tokens_max, response_tokens_max, overlong, needs_logprobs, images)
    selected = BatchRows()
    rules, all_groups = scoring or Scoring(), list(groups)
    for group, advantages in zip(all_groups, call_advantages(all_groups, rules, own), strict=True):
        weighed = sum(
            _select(selected, group.group_id, trajectory, advantages[i], limits, zero_counts=rules.weighs_zeros)
            for i, trajectory in enumerate(group.trajectories)
        )
        selected.groups_without_signal += not weighed
        never_came = group.asked - len(group.sampled)
        selected.rollouts_asked += group.asked
        selected.sequences_asked += never_came
    return selected


def weigh_rows(
    weighed: Iterable[tuple[Trajectory, float | Iterable[float]]],
    *,
    own: OwnPolicy | None = None,
    prompt_tokens_max: int | None = None,
    response_tokens_max: int | None = None,
    overlong: Overlong = "exclude",
    images: ImageCheck | None = None,
) -> BatchRows:
    """The rows of trajectories whose advantages are known, and a reason for every call that has no weight.

    Args:
        weighed: each with its advantage, or with one for each of its triplets.
        own, prompt_tokens_max, response_tokens_max, overlong, images: as for :func:`select_rows`.

    Raises:
        ValueError: an advantage is no finite number within float32, or there are more or fewer than triplets.
    """
    limits = _Limits(own, prompt_tokens_max, response_tokens_max, overlong, needs_logprobs=True, images=images)
    selected = BatchRows()
    for trajectory, given in weighed:
        calls = len(trajectory.triplets)
        advantages = [float(value) for value in (given if isinstance(given, Iterable) else [given] * calls)]
        if len(advantages) != calls:
            raise ValueError(f"{trajectory.rollout_id} has {calls} triplets, and {len(advantages)} advantages")
        if not all(map(is_float32, advantages)):
            raise ValueError(
                f"{trajectory.rollout_id} has the advantages {advantages}; finite numbers within float32 are needed"
            )
        _select(
            selected, trajectory.group_id or trajectory.rollout_id, trajectory, advantages, limits, zero_counts=False
        )
        selected.rollouts_asked += 1
    return selected


def _select(
    selected: BatchRows,
    group_id: str,
    trajectory: Trajectory,
    advantages: Sequence[float | Exclusion],
    limits: _Limits,
    *,
    zero_counts: bool,
) -> int:
    """Take in a member of a group; returns how many of its calls have a weight."""
    outcomes: dict[int, float | Exclusion] = {}
    sound: list[TripletRecord] = []
    reasons: Counter[Exclusion] = Counter()
    if not trajectory.triplets:
        reasons[Exclusion.NO_CALLS] += 1
    for triplet, advantage in zip(trajectory.triplets, advantages, strict=True):
        fault = _fault(triplet) or _fault_of_images(triplet, trajectory, limits.images)
        if fault is None:
            sound.append(triplet)
            outcomes[triplet.call_index] = _outcome(triplet, advantage, limits)
        else:
            reasons[fault] += 1
    rollout, used, has_rows = len(selected.scores), 0, False
    segments = sorted(merge_segments(sound), key=_content)
    if trajectory.mode is not RolloutMode.TEST:
        selected.sequences_asked += max(1, sum(_is_own(segment, outcomes) for segment in segments))
    for segment in segments:
        spans: list[Span] = []
        for turn in segment.turns:
            outcome = outcomes[turn.call_index]
            if isinstance(outcome, Exclusion):
                reasons[outcome] += 1
                continue
            end = turn.end
            if limits.response_tokens_max is not None:
                end = min(end, turn.start + limits.response_tokens_max)
            spans.append(Span(turn.start, end, outcome, turn.call_index))
            used += zero_counts or outcome != 0
            reasons[Exclusion.NO_SIGNAL] += not zero_counts and outcome == 0
        if spans:
            images = [turn.images for turn in segment.turns if turn.call_index == spans[-1].call_index]
            shown = tuple(trajectory.images[number] for number in segment.images[: images[0]])
            selected.rows.append(Row(rollout, segment, tuple(spans), shown))
            has_rows = True
    if has_rows:
        score = rollout_score(trajectory)
        selected.scores.append(math.nan if score is None else score)
        selected.groups.append(group_id)
        selected.rollout_ids.append(trajectory.rollout_id)
    key = trajectory.rollout_id, trajectory.attempt_id
    selected.triplets_used[key] = used
    selected.not_trained[key] = {reason.value: count for reason, count in reasons.items() if count}
    selected.excluded.update({reason: count for reason, count in reasons.items() if count})
    return used


def _content(segment: Segment) -> tuple[bytes, ...]:
    """What segments are ordered by: parallel calls arrive in any order, and mini-batches must not depend on it."""
    return segment.token_ids, segment.logprobs, segment.rewards


def _is_own(segment: Segment, outcomes: Mapping[int, float | Exclusion]) -> bool:
    """Whether a call of a segment is the policy's own, trained on or not."""
    return any(outcomes[turn.call_index] is not Exclusion.OTHER_POLICY for turn in segment.turns)


def _fault(triplet: TripletRecord) -> Exclusion | None:
    """The reason why a call cannot even stand in a segment, if any."""
    prompt, prompt_rest = divmod(len(triplet.prompt_token_ids), TOKEN_BYTES)
    response, response_rest = divmod(len(triplet.response_token_ids), TOKEN_BYTES)
    if prompt_rest or response_rest or len(triplet.response_mask) != response:
        return Exclusion.MISALIGNED
    if triplet.response_logprobs is not None and len(triplet.response_logprobs) != TOKEN_BYTES * response:
        return Exclusion.MISALIGNED
    if not prompt or not response or not any(triplet.response_mask):
        return Exclusion.EMPTY
    return None


def _fault_of_images(triplet: TripletRecord, trajectory: Trajectory, check: ImageCheck | None) -> Exclusion | None:
    there = range(len(trajectory.images))
    if any(number not in there for number in triplet.images):
        return Exclusion.IMAGES_MISMATCH
    return None if check is None else check.fault(triplet, [trajectory.images[number] for number in triplet.images])


def _outcome(triplet: TripletRecord, advantage: float | Exclusion, limits: _Limits) -> float | Exclusion:
    """A call's advantage, or why it has no weight."""
    reason = _reason_against(triplet, limits)
    if reason is None and advantage is not Exclusion.NOT_FOR_TRAINING and limits.own is not None:
        reason = limits.own.reason_against(triplet)
    if reason is not None or isinstance(advantage, Exclusion):
        return reason or advantage
    return advantage if is_float32(advantage) else Exclusion.NOT_FINITE


def _reason_against(triplet: TripletRecord, limits: _Limits) -> Exclusion | None:
    if limits.needs_logprobs and triplet.response_logprobs is None:
        return Exclusion.NO_LOGPROBS
    if limits.needs_logprobs and not np.isfinite(np.frombuffer(triplet.response_logprobs or b"", "<f4")).all():
        return Exclusion.MISALIGNED
    prompt = len(triplet.prompt_token_ids) // TOKEN_BYTES
    response = len(triplet.response_token_ids) // TOKEN_BYTES
    if limits.prompt_tokens_max is not None and prompt > limits.prompt_tokens_max:
        return Exclusion.TOO_LONG
    if limits.response_tokens_max is not None and limits.overlong == "exclude":
        is_cut_off = triplet.finish_reason == CUT_OFF
        if is_cut_off or response > limits.response_tokens_max:
            return Exclusion.TOO_LONG
    return None
