"""Runners, and one to step through by hand."""

from __future__ import annotations

from .agent import LitAgentRunner
from .base import Runner
from .legacy import LegacyAgentRunner

__all__ = ["LegacyAgentRunner", "LitAgentRunner", "Runner"]
