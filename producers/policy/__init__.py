"""Agents under a policy kernel (Agent-OS, or anything with its two methods): violations become spans, or failures."""

from .governed_agent import GovernedAgent, PolicyRunner
from .kernel import PolicyKernel, PolicyViolation, PolicyViolationError, ViolationHandler

__all__ = [
    "GovernedAgent",
    "PolicyKernel",
    "PolicyRunner",
    "PolicyViolation",
    "PolicyViolationError",
    "ViolationHandler",
]
