"""Runners."""

from __future__ import annotations

from lightstream.producers import Runner

from ._lit_agent_runner import LitAgentRunner

__all__ = ["LitAgentRunner", "Runner"]
