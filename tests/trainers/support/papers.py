"""What the papers say of estimators, losses and weights, in Python's floats: written from these alone.

=================== ==================================================================================================
GRPO                arXiv:2402.03300, equation 3 and section 4.1.2: A = (r - mean(r)) / std(r); 1/G sum 1/|o| sum.
Dr. GRPO            arXiv:2503.20783, section 3.2: A = r - mean(r); 1/G sum over tokens, over a constant length.
RLOO                arXiv:2402.14740, equation 6: r_i - 1/(k-1) sum of the others.
REINFORCE++         arXiv:2501.03262: A normalised by mean and std over the batch; its baseline form takes the group's
                    mean from the reward first.
DAPO                arXiv:2503.14476, equation 8: 1/(sum |o|) sum over all tokens; clip 1 - low, 1 + high; answers that
                    were cut off are masked (section 3.4).
GSPO                arXiv:2507.18071, equations 5 to 7: s = (p(o)/p_old(o))^(1/|o|), clipped as a whole, 1/G sum.
CISPO               arXiv:2506.13585, equations 4 and 5: -sg(clip(r)) A log p, no lower bound.
PPO                 arXiv:1707.06347, equation 7: min(r A, clip(r) A).
=================== ==================================================================================================

A rollout is one answer here, or ``n`` choices of one request, which share the prompt and the rollout's reward (a choice
of this project: no paper has them). An answer that was left out keeps its place in every ``G``. Where papers leave it
open (the estimator of std), verl's is taken: over n - 1, plus 1e-6; REINFORCE++: over n - 1, plus 1e-8 below the root.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

FLOAT32_MAX = 3.4028234663852886e38


@dataclass
class Answer:
    """Log-probability of each token as sampled; whether it was cut off, or failed in some other way."""

    sampled: list[float]
    cut_off: bool = False
    spoilt: bool = False


@dataclass
class Rollout:
    """A reward (``None``: it failed, and has none), and answers."""

    reward: float | None
    answers: list[Answer] = field(default_factory=list[Answer])


def _number(reward: float | None) -> float | None:
    """A reward that float32 can hold; others are none."""
    return reward if reward is not None and math.isfinite(reward) and abs(reward) <= FLOAT32_MAX else None


def advantages(groups: list[list[Rollout]], estimator: str) -> list[list[float | None]]:
    """Of each rollout; ``None``: it cannot be compared, or its advantage is beyond float32."""
    found = [_of_group([_number(rollout.reward) for rollout in group], estimator) for group in groups]
    if estimator.startswith("reinforce_plus_plus"):
        _normalise(groups, found)
    return [[None if a is None else _number(a) for a in of_group] for of_group in found]


def _of_group(rewards: list[float | None], estimator: str) -> list[float | None]:
    known = [r for r in rewards if r is not None]
    if estimator == "reinforce_plus_plus":
        return list(rewards)
    if len(known) < 2:
        return [None for _ in rewards]
    if len(set(known)) == 1:
        return [None if r is None else 0.0 for r in rewards]
    mean = math.fsum(known) / len(known)
    if estimator == "rloo":
        return [None if r is None else r - (math.fsum(known) - r) / (len(known) - 1) for r in rewards]
    scale = 1.0
    if estimator == "grpo":
        scale = math.sqrt(math.fsum((r - mean) ** 2 for r in known) / (len(known) - 1)) + 1e-6
    return [None if r is None else (r - mean) / scale for r in rewards]


def _normalise(groups: list[list[Rollout]], found: list[list[float | None]]) -> None:
    """Over all tokens of the batch."""
    tokens = [
        a
        for group, of_group in zip(groups, found, strict=True)
        for rollout, a in zip(group, of_group, strict=True)
        if a is not None
        for answer in rollout.answers
        for _ in answer.sampled
    ]
    if not tokens:
        return
    mean = math.fsum(tokens) / len(tokens)
    variance = math.fsum((a - mean) ** 2 for a in tokens) / max(1, len(tokens) - 1)
    for of_group in found:
        of_group[:] = [
            None if a is None else 0.0 if len(set(tokens)) < 2 else (a - mean) / math.sqrt(variance + 1e-8)
            for a in of_group
        ]


def weights(
    groups: list[list[Rollout]], kept: list[tuple[int, int, int]], normalisation: str, constant: int
) -> list[float]:
    """The factor in front of each kept answer's sum over tokens; ``kept`` are (group, rollout, answer)."""

    def tokens(place: tuple[int, int, int]) -> int:
        return len(groups[place[0]][place[1]].answers[place[2]].sampled)

    rollouts = sum(len(group) for group in groups)
    answers = sum(max(1, len(rollout.answers)) for group in groups for rollout in group)
    if normalisation == "token":
        return [1 / sum(map(tokens, kept)) for _ in kept]
    if normalisation == "constant":
        return [1 / (rollouts * constant) for _ in kept]
    if normalisation == "sequence":
        return [1 / (answers * tokens(place)) for place in kept]
    return [1 / (rollouts * sum(tokens(p) for p in kept if p[:2] == place[:2])) for place in kept]


def loss_and_gradient(
    loss: str, advantage: float, sampled: list[float], actor: list[float], low: float, high: float
) -> tuple[list[float], list[float]]:
    """Each token's loss, and its derivative by the token's log-probability under the actor.

    GSPO's derivative of a token is of its own term, in which the ratio is s * p / sg(p) (equation 14).
    """
    mean = math.fsum(a - s for a, s in zip(actor, sampled, strict=True)) / len(sampled)
    values: list[float] = []
    slopes: list[float] = []
    for now, then in zip(actor, sampled, strict=True):
        ratio = math.exp(mean if loss == "gspo" else now - then)
        clipped = min(max(ratio, 1 - low), 1 + high)
        if loss == "cispo":
            values.append(-clipped * advantage * now)
            slopes.append(-clipped * advantage)
            continue
        values.append(-min(ratio * advantage, clipped * advantage))
        slopes.append(-ratio * advantage if ratio * advantage <= clipped * advantage else 0.0)
    return values, slopes
