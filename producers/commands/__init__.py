"""Agents that are programs in any language."""

from .agent import CommandAgent
from .process import CommandError, CommandLimits

__all__ = ["CommandAgent", "CommandError", "CommandLimits"]
