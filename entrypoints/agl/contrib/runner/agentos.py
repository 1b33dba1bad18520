"""A Runner under an Agent-OS kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lightstream.producers import GovernedAgent, Hook, LitAgent, OtelTracer
from lightstream.producers.policy import PolicyKernel, PolicyViolation, PolicyViolationError
from lightstream.schemas.types import NamedResources, Rollout, RolloutMode

from ...execution import ExecutionEvent
from ...runner import LitAgentRunner

__all__ = ["AgentOSRunner", "GovernedRollout", "PolicyViolation", "PolicyViolationError"]


@dataclass
class GovernedRollout:
    """The result of :meth:`AgentOSRunner.step`.

    Attributes:
        task_input: the task.
        task_output: what the kernel returned; ``None`` where the agent was blocked.
        success: whether the attempt succeeded.
        violations: what the kernel reported.
        rollout: as the store has it.
    """

    task_input: Any
    task_output: Any
    success: bool
    violations: list[PolicyViolation] = field(default_factory=list[PolicyViolation])
    rollout: Rollout | None = None

    @property
    def total_penalty(self) -> float:
        """Of all violations, 0 or less."""
        return sum(violation.penalty for violation in self.violations)


class AgentOSRunner(LitAgentRunner[Any]):
    """As ``LitAgentRunner``, under policies: see :class:`GovernedAgent`.

    Args:
        kernel: runs the agent and reports violations.
        fail_on_violation: whether a violation that was blocked fails the attempt.
        emit_violations: whether each violation becomes a span.
        tracer, max_rollouts: of ``LitAgentRunner``.
    """

    def __init__(
        self,
        kernel: PolicyKernel,
        *,
        fail_on_violation: bool = False,
        emit_violations: bool = True,
        tracer: OtelTracer | None = None,
        max_rollouts: int | None = None,
    ) -> None:
        super().__init__(tracer, max_rollouts)
        self.kernel = kernel
        self.fail_on_violation = fail_on_violation
        self.emit_violations = emit_violations
        self._attempts: list[list[PolicyViolation]] = []

    def init(self, agent: LitAgent[Any], *, hooks: Sequence[Hook] | None = None, **kwargs: Any) -> None:
        governed = GovernedAgent(
            agent,
            self.kernel,
            fail_on_violation=self.fail_on_violation,
            emit_violations=self.emit_violations,
            on_attempt=self._attempts.append,
        )
        super().init(governed, hooks=hooks)

    async def step(  # type: ignore[override]  # the contribution's own result
        self,
        input: Any,  # noqa: A002  # the interface's name
        *,
        resources: NamedResources | None = None,
        mode: RolloutMode | None = None,
        event: ExecutionEvent | None = None,
    ) -> GovernedRollout:
        """Run one task outside the queue. A violation that fails it is reported, not raised.

        Raises:
            Exception: whatever else the agent raised.
        """
        try:
            outcome, rollout = await self._step(input, resources, mode)
        except PolicyViolationError:
            return GovernedRollout(input, None, False, self._attempts[-1])
        return GovernedRollout(input, outcome.result, True, self._attempts[-1], rollout)

    def get_stats(self) -> dict[str, float]:
        """``total_rollouts``, ``total_violations`` and their ratio ``violation_rate``, since this Runner was made."""
        rollouts, violations = len(self._attempts), sum(map(len, self._attempts))
        return {
            "total_rollouts": rollouts,
            "total_violations": violations,
            "violation_rate": violations / rollouts if rollouts else 0.0,
        }
