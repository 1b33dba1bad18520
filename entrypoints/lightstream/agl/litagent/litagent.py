"""``agentlightning.litagent.litagent``: the base class of agents."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from lightstream.producers import LitAgent

__all__ = ["LitAgent", "is_v0_1_rollout_api"]


def is_v0_1_rollout_api(func: Callable[..., Any]) -> bool:
    """Whether a rollout method is of Agent Lightning's first interface, which took the rollout's id."""
    return "rollout_id" in inspect.signature(func).parameters
