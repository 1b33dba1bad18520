"""What a policy kernel offers."""

from __future__ import annotations

import inspect
from typing import Any, Protocol

from lightstream.schemas.errors import SettingsError

__all__ = ["PolicyKernel", "ViolationHandler", "check_kernel", "executes_in_thread"]


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
    """Whether the kernel can run a synchronous agent synchronously."""
    execute = getattr(kernel, "execute", None)
    return callable(execute) and not inspect.iscoroutinefunction(execute)
