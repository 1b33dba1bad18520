"""Rewards. The module may be called as the decorator :func:`reward`, whose name it has in the package."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from .emitter import (
    emit_reward,
    find_final_reward,
    find_reward_spans,
    get_reward_value,
    get_rewards_from_span,
    is_reward_span,
    reward,
)

__all__ = [
    "emit_reward",
    "find_final_reward",
    "find_reward_spans",
    "get_reward_value",
    "get_rewards_from_span",
    "is_reward_span",
    "reward",
]


class _RewardModule(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return reward(*args, **kwargs)


sys.modules[__name__].__class__ = _RewardModule
