"""Runners: take rollouts from the store and run an agent on them."""

from .hooks import Hook
from .outcome import Outcome
from .runner import Runner

__all__ = ["Hook", "Outcome", "Runner"]
