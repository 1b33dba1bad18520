"""Agents."""

from .decorator import FunctionalLitAgent, llm_rollout, prompt_rollout, rollout
from .lit_agent import LitAgent, RolloutResult

__all__ = ["FunctionalLitAgent", "LitAgent", "RolloutResult", "llm_rollout", "prompt_rollout", "rollout"]
