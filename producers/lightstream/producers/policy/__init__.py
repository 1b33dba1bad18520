"""Agents under a policy kernel (Agent-OS, or anything with its two methods): violations become spans, or failures."""

from .governed_agent import GovernedAgent
from .kernel import PolicyKernel, ViolationHandler
from .policy_runner import PolicyRunner
from .violation import PolicyViolation, PolicyViolationError

__all__ = [
    "GovernedAgent",
    "PolicyKernel",
    "PolicyRunner",
    "PolicyViolation",
    "PolicyViolationError",
    "ViolationHandler",
]
