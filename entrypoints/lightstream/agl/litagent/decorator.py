"""``agentlightning.litagent.decorator``: agents from functions."""

from __future__ import annotations

from lightstream.producers import llm_rollout, prompt_rollout, rollout
from lightstream.producers.agent import FunctionalLitAgent

__all__ = ["FunctionalLitAgent", "llm_rollout", "prompt_rollout", "rollout"]
