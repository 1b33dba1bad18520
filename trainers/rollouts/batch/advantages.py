"""The advantage of each call of a step, or why it has none: before anything is said of its tokens."""

from __future__ import annotations

from collections.abc import Sequence

from lightstream.schemas.packing import is_float32
from lightstream.schemas.records import RolloutMode, Trajectory

from ..groups import Group
from .exclusions import Exclusion
from .own_policy import OwnPolicy
from .scores import Scoring, group_advantages, is_beyond, rollout_score, whitened


def call_advantages(
    groups: Sequence[Group], scoring: Scoring, own: OwnPolicy | None = None
) -> list[list[list[float | Exclusion]]]:
    """Of each call of each trajectory of each group: its advantage, or why it has none.

    A group's greedy rollout is among its trajectories; its calls are not for training. Calls of other models than the
    policy's ``own`` are compared with nothing, and nothing with them.
    """
    of_groups = [_of_group(group, scoring, own) for group in groups]
    if scoring.whitens:
        _whiten(groups, of_groups)
    return of_groups


def _whiten(groups: Sequence[Group], of_groups: list[list[list[float | Exclusion]]]) -> None:
    """Whiten the advantages of all calls that have one, whether these can be trained on or not."""
    values: list[float] = []
    tokens: list[int] = []
    places: list[tuple[list[float | Exclusion], int]] = []
    for group, advantages in zip(groups, of_groups, strict=True):
        for trajectory, of_calls in zip(group.trajectories, advantages, strict=True):
            for place, (triplet, value) in enumerate(zip(trajectory.triplets, of_calls, strict=True)):
                if not isinstance(value, Exclusion):
                    values.append(value)
                    tokens.append(sum(triplet.response_mask))
                    places.append((of_calls, place))
    for (of_calls, place), value in zip(places, whitened(values, tokens) if values else [], strict=True):
        of_calls[place] = value


def _of_group(group: Group, scoring: Scoring, own: OwnPolicy | None) -> list[list[float | Exclusion]]:
    foreign = [[None if own is None else own.is_foreign(c) for c in t.triplets] for t in group.sampled]
    of_sampled = iter(_of_sampled(group.sampled, group.baseline, scoring, foreign))
    return [
        [Exclusion.NOT_FOR_TRAINING] * len(t.triplets) if t.mode is RolloutMode.TEST else next(of_sampled)
        for t in group.trajectories
    ]


def _of_sampled(
    members: Sequence[Trajectory],
    baseline: Trajectory | None,
    scoring: Scoring,
    foreign: Sequence[Sequence[Exclusion | None]],
) -> list[list[float | Exclusion]]:
    if scoring.per == "rollout":
        of_member = _of_rollouts(members, baseline, scoring)
        return [[reason or judged for reason in calls] for judged, calls in zip(of_member, foreign, strict=True)]
    greedy = {} if baseline is None else {triplet.call_index: triplet.reward for triplet in baseline.triplets}
    calls: dict[int, list[tuple[int, int]]] = {}
    for member, trajectory in enumerate(members):
        for place, triplet in enumerate(trajectory.triplets):
            if foreign[member][place] is None:
                calls.setdefault(triplet.call_index, []).append((member, place))
    judged: list[list[float | Exclusion]] = [[reason or Exclusion.NO_REWARD for reason in c] for c in foreign]
    for call_index, places in calls.items():
        given = [members[member].triplets[place].reward for member, place in places]
        beyond = [reward is not None and not is_float32(reward) for reward in given]
        of_calls = _judged([_finite(reward) for reward in given], beyond, scoring, _finite(greedy.get(call_index)))
        for (member, place), outcome in zip(places, of_calls, strict=True):
            judged[member][place] = outcome
    return judged


def _finite(reward: float | None) -> float | None:
    return reward if reward is not None and is_float32(reward) else None


def _of_rollouts(
    members: Sequence[Trajectory], baseline: Trajectory | None, scoring: Scoring
) -> list[float | Exclusion]:
    def judged_by(dimension: str | None = None) -> list[float | Exclusion]:
        greedy = None if baseline is None else rollout_score(baseline, dimension)
        scores = [rollout_score(trajectory, dimension) for trajectory in members]
        return _judged(scores, [is_beyond(trajectory, dimension) for trajectory in members], scoring, greedy)

    if not scoring.dimensions:
        return judged_by()
    total: list[float | Exclusion] = [0.0] * len(members)
    for name, weight in scoring.dimensions.items():
        judged = judged_by(name)
        total = [
            so_far if isinstance(so_far, Exclusion) else one if isinstance(one, Exclusion) else so_far + weight * one
            for so_far, one in zip(total, judged, strict=True)
        ]
    return total


def _judged(
    scores: Sequence[float | None], beyond: Sequence[bool], scoring: Scoring, baseline: float | None
) -> list[float | Exclusion]:
    """Args: scores; which of those that are missing were given, and are no finite number; how; the greedy's score."""
    failed = scoring.reward_missing == "fail_group" and None in scores
    judged: list[float | Exclusion] = []
    advantages = group_advantages(scores, scoring, baseline)
    for score, is_no_number, advantage in zip(scores, beyond, advantages, strict=True):
        if advantage is not None:
            judged.append(Exclusion.REJECTED if scoring.rejects and not advantage and any(advantages) else advantage)
        elif score is None and scoring.reward_missing != "fill":
            judged.append(Exclusion.NOT_FINITE if is_no_number else Exclusion.NO_REWARD)
        else:
            judged.append(Exclusion.GROUP_FAILED if failed else Exclusion.NOT_COMPARABLE)
    return judged
