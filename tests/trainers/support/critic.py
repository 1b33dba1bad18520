"""Advantages by GAE and the loss of values, slowly, from the definitions. Shares no code with the engine.

Tokens are known by their ids, each of which is sampled once.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lightstream.trainers.rollouts.groups import Group


@dataclass(frozen=True)
class Gae:
    """Token -> its whitened advantage, and the return that its value should have been."""

    advantages: dict[int, float]
    returns: dict[int, float]


def episodes(groups: Iterable[Group], trained: Iterable[int]) -> list[list[tuple[int, int]]]:
    """Of each rollout, (call, token) of the tokens that are trained on: in the order of calls, and within a call."""
    wanted, found = set(trained), list[list[tuple[int, int]]]()
    for group in groups:
        for trajectory in group.trajectories:
            episode: list[tuple[int, int]] = []
            for triplet in sorted(trajectory.triplets, key=lambda triplet: triplet.call_index):
                ids = struct.unpack(f"<{len(triplet.response_token_ids) // 4}i", triplet.response_token_ids)
                episode += [(triplet.call_index, token) for token in ids if token in wanted]
            found.append(episode)
    return found


def gae(
    rollouts: Sequence[Sequence[tuple[int, int]]],
    given: Mapping[int, float],
    values: Mapping[int, float],
    *,
    per: str,
    gamma: float,
    lam: float,
    costs: Mapping[int, float] | None = None,
) -> Gae:
    """Generalised advantages, arXiv:1506.02438 (16), each as the sum that it is.

    Args:
        rollouts: of :func:`episodes`.
        given: token -> the reward of its rollout (``per="turn"``: of its call), which its last token gets.
        values: token -> what the critic expected before it.
        costs: token -> what is taken from its reward.
    """
    advantages: dict[int, float] = {}
    returns: dict[int, float] = {}
    for episode in rollouts:
        errors: list[float] = []
        for place, (call, token) in enumerate(episode):
            after = episode[place + 1] if place + 1 < len(episode) else None
            is_last = after is None or (per == "turn" and after[0] != call)
            reward = (given[token] if is_last else 0.0) - (costs or {}).get(token, 0.0)
            following = 0.0 if after is None else values[after[1]]
            errors.append(reward + gamma * following - values[token])
        for place, (_, token) in enumerate(episode):
            advantages[token] = math.fsum((gamma * lam) ** k * error for k, error in enumerate(errors[place:]))
            returns[token] = advantages[token] + values[token]
    count = len(advantages)
    if count < 2:
        return Gae(dict.fromkeys(advantages, 0.0), returns)
    mean = math.fsum(advantages.values()) / count
    variance = math.fsum((a - mean) ** 2 for a in advantages.values()) / (count - 1)
    return Gae({t: (a - mean) / math.sqrt(variance + 1e-8) for t, a in advantages.items()}, returns)


def value_loss(
    values: Mapping[int, float],
    before: Mapping[int, float],
    returns: Mapping[int, float],
    weights: Mapping[int, float],
    clip: float,
) -> float:
    """PPO's clipped loss of values, each token by its weight."""
    return math.fsum(
        weights[t] * 0.5 * max((values[t] - returns[t]) ** 2, (_near(values[t], before[t], clip) - returns[t]) ** 2)
        for t in weights
    )


def value_gradient(
    values: Mapping[int, float],
    before: Mapping[int, float],
    returns: Mapping[int, float],
    weights: Mapping[int, float],
    clip: float,
) -> dict[int, float]:
    """Its derivative by each value."""
    slopes: dict[int, float] = {}
    for t, weight in weights.items():
        near = _near(values[t], before[t], clip)
        moved_too_far = near != values[t] and (near - returns[t]) ** 2 > (values[t] - returns[t]) ** 2
        slopes[t] = 0.0 if moved_too_far else weight * (values[t] - returns[t])
    return slopes


def _near(value: float, before: float, clip: float) -> float:
    return min(max(value, before - clip), before + clip)
