"""Agents from classes and from functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from lightstream.producers import LitAgent, llm_rollout, prompt_rollout, rollout
from lightstream.producers.agent import FunctionalLitAgent

from ._names import add_parts

__all__ = ["FunctionalLitAgent", "LitAgent", "is_v0_1_rollout_api", "llm_rollout", "prompt_rollout", "rollout"]


def is_v0_1_rollout_api(func: Callable[..., Any]) -> bool:
    """Return whether a rollout method is of Agent Lightning's first interface, which took the rollout's id."""
    return "rollout_id" in inspect.signature(func).parameters


add_parts(__name__)
