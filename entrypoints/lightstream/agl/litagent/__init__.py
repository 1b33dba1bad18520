"""``agentlightning.litagent``: agents, from classes and from functions."""

from __future__ import annotations

from lightstream.producers import LitAgent, llm_rollout, prompt_rollout, rollout

__all__ = ["LitAgent", "llm_rollout", "prompt_rollout", "rollout"]
