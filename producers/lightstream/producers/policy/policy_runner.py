"""A Runner whose agent runs within a policy kernel."""

from __future__ import annotations

from typing import Any

from lightstream.schemas.interfaces import LightningStore

from ..agent import LitAgent
from ..runner import Runner
from .governed_agent import GovernedAgent
from .kernel import PolicyKernel

__all__ = ["PolicyRunner"]


class PolicyRunner(Runner):
    """As :class:`Runner`, under policies: see :class:`GovernedAgent`, which other Runners may be given as well.

    Args:
        kernel: runs the agent and reports violations.
        fail_on_violation: whether a blocked violation fails the attempt (``error_type`` ``PolicyViolationError``).
        emit_violations: whether each violation becomes a span.
        options: those of :class:`Runner`.
    """

    def __init__(
        self,
        store: LightningStore,
        agent: LitAgent[Any],
        kernel: PolicyKernel,
        *,
        fail_on_violation: bool = False,
        emit_violations: bool = True,
        **options: Any,
    ) -> None:
        governed = GovernedAgent(agent, kernel, fail_on_violation=fail_on_violation, emit_violations=emit_violations)
        super().__init__(store, governed, **options)
