"""Agents."""

from .decorator import FunctionalLitAgent, rollout
from .lit_agent import LitAgent, RolloutResult

__all__ = ["FunctionalLitAgent", "LitAgent", "RolloutResult", "rollout"]
