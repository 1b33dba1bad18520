"""Scores of rollouts, and advantages within their groups. Pure arithmetic in float64.

A group is scored before anything of it is left out of the batch: what a rollout is compared with does not depend on
which calls can be trained on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

import numpy as np

from lightstream.schemas.errors import SettingsError
from lightstream.schemas.packing import is_float32
from lightstream.schemas.records import Trajectory

Advantage: TypeAlias = Literal[
    "grpo",
    "group_mean",
    "dr_grpo",
    "rloo",
    "remax",
    "reinforce",
    "reinforce_plus_plus",
    "reinforce_plus_plus_baseline",
    "best_of_n",
    "gae",
]
AdvantagePer: TypeAlias = Literal["rollout", "turn"]
MissingReward: TypeAlias = Literal["exclude", "fill", "fail_group"]

ADVANTAGES: tuple[str, ...] = get_args(Advantage)

WHITENING_EPSILON = 1e-8
"""As verl has it."""

STD_EPSILON = 1e-6
"""As verl has it: keeps the quotient finite where rewards differ by rounding alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """Rules by which rewards become advantages.

    Attributes:
        advantage: ``grpo`` (reward minus the group's mean, divided by its sample standard deviation; arXiv:2402.03300),
            ``group_mean`` (not divided), ``dr_grpo`` (the same advantage; the loss has a constant denominator too,
            arXiv:2503.20783), ``rloo`` (reward minus the mean of the others; arXiv:2402.14740),
            ``remax`` (reward minus that of the group's greedy rollout, which is not trained on; arXiv:2310.10505),
            ``reinforce`` (the
            reward itself: compared with nothing, so that a group of one has a weight too), ``reinforce_plus_plus`` and
            ``reinforce_plus_plus_baseline`` (the reward, or the reward minus the group's mean; then see
            :func:`whitened`; arXiv:2501.03262), ``best_of_n`` (1 for the best of the group, equally good ones included,
            unless all are equal; nothing is learned from the others: rejection sampling, arXiv:2304.06767), ``gae``
            (the reward itself, of which an engine with a critic makes the advantage of each token; arXiv:1506.02438).
        per: ``rollout``: each has one score and one advantage. ``turn``: each call has the reward that credit
            assignment gave it, compared with the calls of the same number in the group's other rollouts.
        reward_missing: what a rollout (or call) without a finite reward is: left out and not compared with
            (``exclude``), as good as ``reward_fill`` (``fill``), or a reason to learn nothing from its group
            (``fail_group``).
        reward_fill: the score that ``fill`` gives.
        dimensions: names of rewards and their weights: each is scored and compared by itself, and a rollout's advantage
            is the weighted sum, so that a dimension with a wide range does not drown the others. Empty: the one reward.

    Raises:
        SettingsError: a name is none of these, or ``reward_fill`` is not finite.
    """

    advantage: Advantage = "grpo"
    per: AdvantagePer = "rollout"
    reward_missing: MissingReward = "exclude"
    reward_fill: float = 0.0
    dimensions: Mapping[str, float] = field(default_factory=dict[str, float])

    def __post_init__(self) -> None:
        for name, known in (
            ("advantage", ADVANTAGES),
            ("per", ("rollout", "turn")),
            ("reward_missing", ("exclude", "fill", "fail_group")),
        ):
            if getattr(self, name) not in known:
                raise SettingsError(f"{name} is {getattr(self, name)!r}; there are {', '.join(known)}.")
        if not math.isfinite(self.reward_fill):
            raise SettingsError(f"reward_fill is {self.reward_fill}; a finite number is needed.")
        if self.dimensions and self.whitens:
            raise SettingsError(f"dimensions of rewards are not whitened together; advantage is {self.advantage!r}.")
        if self.dimensions and self.rejects:
            raise SettingsError("dimensions of rewards have no best rollout; advantage is 'best_of_n'.")
        if self.dimensions and self.per == "turn":
            raise SettingsError('dimensions of rewards are compared per rollout; per is "turn".')
        for name, weight in self.dimensions.items():
            if not math.isfinite(weight):
                raise SettingsError(f"the weight of dimension {name!r} is {weight}; a finite number is needed.")

    @property
    def whitens(self) -> bool:
        """Whether advantages are whitened over the batch."""
        return self.advantage.startswith("reinforce_plus_plus")

    @property
    def rejects(self) -> bool:
        """Whether the best of a group alone are learned from."""
        return self.advantage == "best_of_n"

    @property
    def has_critic(self) -> bool:
        """Whether rewards are left as they are, for a critic: then a reward of zero has something to say too."""
        return self.advantage == "gae"


def whitened(advantages: Sequence[float], tokens: Sequence[int]) -> list[float]:
    """Advantages of calls with the mean 0 and the variance 1 over all sampled tokens of a batch.

    Args:
        advantages: one per call.
        tokens: how many tokens each call sampled.
    """
    values, counts = np.array(advantages, np.float64), np.array(tokens, np.float64)
    total = counts.sum()
    if total < 2 or values.min() == values.max():
        return [0.0] * len(values)
    centred = values - (values * counts).sum() / total
    variance = (centred**2 * counts).sum() / (total - 1)
    whitened: list[float] = (centred / np.sqrt(variance + WHITENING_EPSILON)).tolist()
    return whitened


def rollout_score(trajectory: Trajectory, dimension: str | None = None) -> float | None:
    """The rollout's reward; where it has none, the sum of the rewards that were given to its calls by link.

    With a ``dimension``: the last reward of that name that is for the whole trajectory. ``None`` where there is no
    finite one within float32, in which engines compute.
    """
    reward = trajectory.reward
    if dimension is not None:
        named = [r.value for r in trajectory.rewards if r.name == dimension and r.call_index is None]
        reward = named[-1] if named else None
    elif reward is None:
        linked = [r.value for r in trajectory.rewards if r.call_index is not None and r.dimension == 0]
        reward = math.fsum(linked) if linked else None
    return reward if reward is not None and is_float32(reward) else None


def is_beyond(trajectory: Trajectory, dimension: str | None = None) -> bool:
    """Whether the rollout has a reward that is no finite number within float32, and so no score."""
    rewards = [trajectory.reward, *(r.value for r in trajectory.rewards if dimension in (None, r.name))]
    return rollout_score(trajectory, dimension) is None and any(r is not None and not is_float32(r) for r in rewards)


def group_advantages(
    scores: Sequence[float | None], scoring: Scoring, baseline: float | None = None
) -> list[float | None]:
    """Advantage of each member of a group.

    Args:
        scores: one per member, ``None`` where its reward is missing.
        scoring: how.
        baseline: for ``remax``, the score of the greedy rollout.

    Returns:
        One per member; ``None`` where it has none: its reward is missing and not filled in, or there is nothing to
        compare with, as fewer than two members have a score (with ``remax``: the greedy rollout has none).
    """
    if scoring.reward_missing == "fill":
        scores = [scoring.reward_fill if score is None else score for score in scores]
        baseline = scoring.reward_fill if baseline is None else baseline
    known = np.array([score for score in scores if score is not None], np.float64)
    compares = scoring.advantage not in ("remax", "reinforce", "reinforce_plus_plus", "gae")
    least = 2 if compares else 1
    if len(known) < least or (scoring.reward_missing == "fail_group" and len(known) < len(scores)):
        return [None] * len(scores)
    if scoring.advantage == "remax":
        return [None if score is None or baseline is None else score - baseline for score in scores]
    if not compares:
        return list(scores)
    if known.min() == known.max():  # a mean of equal numbers may differ from them in its last bit
        return [None if score is None else 0.0 for score in scores]
    if scoring.rejects:
        return [None if score is None else float(score == known.max()) for score in scores]
    centred = known - known.mean()
    if scoring.advantage == "grpo":
        centred /= known.std(ddof=1) + STD_EPSILON
    elif scoring.advantage == "rloo":
        centred *= len(known) / (len(known) - 1)
    left = iter(centred.tolist())
    return [None if score is None else next(left) for score in scores]
