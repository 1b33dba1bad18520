"""A policy kernel, and the violations that it reports."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from lightstream.schemas.errors import LightstreamError, SettingsError

PENALTIES = {"critical": -100.0, "high": -50.0, "medium": -10.0, "low": -1.0}
"""Those of Agent Lightning's contribution for Agent-OS. ``LIGHTSTREAM_AUTOMATIC_REWARDS`` prices them."""

PENALTY_OF_OTHERS = PENALTIES["medium"]


@dataclass(frozen=True, slots=True)
class PolicyViolation:
    """One violation.

    Attributes:
        policy_name: which policy was violated.
        description: how, for a reader.
        severity: ``critical``, ``high``, ``medium`` or ``low``; a kernel may have others.
        blocked: whether the kernel blocked it.
        timestamp: when it was reported.
    """

    policy_name: str
    description: str
    severity: str
    blocked: bool
    timestamp: datetime = field(default_factory=lambda: datetime.now(UTC), compare=False)

    @property
    def penalty(self) -> float:
        """The penalty of its severity, 0 or less."""
        return PENALTIES.get(self.severity, PENALTY_OF_OTHERS)


class PolicyViolationError(LightstreamError):
    """An attempt failed because its kernel blocked an action of the agent.

    Attributes:
        violation: the first that was blocked.
    """

    def __init__(self, violation: PolicyViolation) -> None:
        super().__init__(
            f"policy {violation.policy_name!r} ({violation.severity}) was violated and the agent blocked: "
            f"{violation.description}"
        )
        self.violation = violation

    def __reduce__(self) -> tuple[type[PolicyViolationError], tuple[PolicyViolation]]:
        return type(self), (self.violation,)


class ViolationHandler(Protocol):
    """Gets each violation, when it happens. May raise, to stop the agent there."""

    def __call__(self, policy_name: str, description: str, severity: str, blocked: bool) -> None: ...


class PolicyKernel(Protocol):
    """Runs an agent under policies: Agent-OS's ``KernelSpace``, or your own.

    Besides this method it has ``execute(agent, task)``, synchronous or not, or ``execute_async(agent, task)``, or
    both. ``agent`` is called with the task and returns what the agent returns (asynchronous: something to await);
    other attributes are the agent's own. The kernel's return value is taken as the agent's result.
    """

    def on_policy_violation(self, handler: ViolationHandler, /) -> Any:
        """Call ``handler`` with each violation, in the thread or task where it happens."""
        ...


def check_kernel(kernel: Any) -> None:
    """Check that ``kernel`` is one.

    Raises:
        SettingsError: it is not one; says what is missing.
    """
    missing: list[str] = []
    if not callable(getattr(kernel, "on_policy_violation", None)):
        missing.append("on_policy_violation(handler)")
    if not any(callable(getattr(kernel, name, None)) for name in ("execute", "execute_async")):
        missing.append("execute(agent, task) or execute_async(agent, task)")
    if missing:
        raise SettingsError(
            f"{type(kernel).__name__} is not a policy kernel: it lacks {' and '.join(missing)}.",
            next_step="Wrap it in an object that has them (lightstream.producers.policy.PolicyKernel).",
        )


def executes_in_thread(kernel: Any) -> bool:
    """Return whether the kernel can run a synchronous agent synchronously."""
    execute = getattr(kernel, "execute", None)
    return callable(execute) and not inspect.iscoroutinefunction(execute)
