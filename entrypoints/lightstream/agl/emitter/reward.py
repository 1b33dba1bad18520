"""``agentlightning.emitter.reward``: emit_reward, and the readers of what it wrote."""

from __future__ import annotations

from typing import TypedDict

from lightstream.producers import (
    emit_reward,
    find_final_reward,
    find_reward_spans,
    get_reward_value,
    get_rewards_from_span,
    is_reward_span,
    reward,
)

__all__ = [
    "RewardDimension",
    "emit_reward",
    "find_final_reward",
    "find_reward_spans",
    "get_reward_value",
    "get_rewards_from_span",
    "is_reward_span",
    "reward",
]


class RewardDimension(TypedDict):
    """One dimension of a reward."""

    name: str
    value: float
