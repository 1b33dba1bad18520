"""An agent, and a Runner, under a policy kernel."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from typing import Any, cast

from lightstream.schemas.errors import SettingsError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import NamedResources, Rollout

from ..agent import LitAgent, RolloutResult
from ..emitter import emit_annotation
from ..runner import Runner
from .kernel import PolicyKernel, PolicyViolation, PolicyViolationError, check_kernel, executes_in_thread

logger = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class _Execution:
    """One attempt under the kernel."""

    owner: GovernedAgent
    violations: list[PolicyViolation] = field(default_factory=list[PolicyViolation])
    context: Context | None = None

    def blocked(self) -> PolicyViolation | None:
        return next((violation for violation in self.violations if violation.blocked), None)


_here: ContextVar[_Execution | None] = ContextVar("lightstream_policy_execution", default=None)


class GovernedAgent(LitAgent[Any]):
    """Runs ``agent`` by ``kernel``, and records the violations that it reports. Any number of attempts at once.

    A violation belongs to the attempt in whose thread or task (or one started from there) the kernel reports it;
    elsewhere, to the only one that its kernel runs. If several run, it is logged as an error and belongs to none.

    Args:
        agent: what to run.
        kernel: see :class:`PolicyKernel`. Its ``execute`` runs in the attempt's thread, for a synchronous agent.
        fail_on_violation: a violation that the kernel blocked raises :class:`PolicyViolationError` where it happens,
            and fails the attempt with it even if the agent or the kernel went on.
        emit_violations: each violation becomes a span (``agentlightning.annotation`` with ``agent_os.violation``),
            which ``LIGHTSTREAM_AUTOMATIC_REWARDS`` may price (``violation.high:-1``).
        on_attempt: called at the end of each attempt with its violations.

    Raises:
        SettingsError: ``kernel`` is not a kernel, or ``agent`` not an agent.
    """

    def __init__(
        self,
        agent: LitAgent[Any],
        kernel: PolicyKernel,
        *,
        fail_on_violation: bool = False,
        emit_violations: bool = True,
        on_attempt: Callable[[list[PolicyViolation]], None] | None = None,
    ) -> None:
        check_kernel(kernel)
        if not isinstance(cast("Any", agent), LitAgent):
            step = "lightstream.producers.rollout makes one from a function of a task."
            raise SettingsError(f"{agent!r:.100} is not an agent.", next_step=step)
        super().__init__(trained_agents=agent.trained_agents)
        self.agent = agent
        self.kernel: Any = kernel
        self.fail_on_violation = fail_on_violation
        self.emit_violations = emit_violations
        self._on_attempt = on_attempt
        kernel.on_policy_violation(self._violated)

    def is_async(self) -> bool:
        return self.agent.is_async() or not executes_in_thread(self.kernel)

    def set_runner(self, runner: Any) -> None:
        super().set_runner(runner)
        self.agent.set_runner(runner)

    def set_trainer(self, trainer: Any) -> None:
        super().set_trainer(trainer)
        self.agent.set_trainer(trainer)

    def rollout(self, task: Any, resources: NamedResources, rollout: Rollout) -> RolloutResult:
        return self._execute(self.agent.rollout, task, resources, rollout)

    def training_rollout(self, task: Any, resources: NamedResources, rollout: Rollout) -> RolloutResult:
        return self._execute(self.agent.training_rollout, task, resources, rollout)

    def validation_rollout(self, task: Any, resources: NamedResources, rollout: Rollout) -> RolloutResult:
        return self._execute(self.agent.validation_rollout, task, resources, rollout)

    async def rollout_async(self, task: Any, resources: NamedResources, rollout: Rollout) -> RolloutResult:
        return await self._execute_async("rollout", task, resources, rollout)

    async def training_rollout_async(self, task: Any, resources: NamedResources, rollout: Rollout) -> RolloutResult:
        return await self._execute_async("training_rollout", task, resources, rollout)

    async def validation_rollout_async(self, task: Any, resources: NamedResources, rollout: Rollout) -> RolloutResult:
        return await self._execute_async("validation_rollout", task, resources, rollout)

    def _execute(
        self, method: Callable[..., Any], task: Any, resources: NamedResources, rollout: Rollout
    ) -> RolloutResult:
        bound = _Bound(self.agent, lambda task: method(task, resources, rollout))
        with self._governed():
            result: RolloutResult = self.kernel.execute(bound, task)
        return result

    async def _execute_async(self, name: str, task: Any, resources: NamedResources, rollout: Rollout) -> RolloutResult:
        agent = self.agent

        async def call(task: Any) -> Any:
            if agent.is_async():
                return await getattr(agent, f"{name}_async")(task, resources, rollout)
            return await asyncio.to_thread(getattr(agent, name), task, resources, rollout)

        execute = getattr(self.kernel, "execute_async", None) or self.kernel.execute
        with self._governed():
            result = execute(_Bound(agent, call), task)
            if inspect.isawaitable(result):
                result = await result
            returned: RolloutResult = result
        return returned

    @contextmanager
    def _governed(self) -> Generator[None]:
        """Collects the violations reported inside.

        Raises:
            PolicyViolationError: one was blocked, and such fail the attempt.
        """
        execution = _Execution(self)
        token = _here.set(execution)
        execution.context = copy_context()
        with _lock:
            _running.append(execution)
        try:
            try:
                yield
            except PolicyViolationError:
                raise
            except Exception as error:
                self._refuse(execution, error)
                raise
            self._refuse(execution, None)
        finally:
            with _lock:
                _running.remove(execution)
            _here.reset(token)
            if self._on_attempt is not None:
                self._on_attempt(list(execution.violations))

    def _refuse(self, execution: _Execution, cause: Exception | None) -> None:
        """Fail an attempt that went on after it was blocked."""
        blocked = execution.blocked()
        if self.fail_on_violation and blocked is not None:
            raise PolicyViolationError(blocked) from cause

    def _violated(self, policy_name: str, description: str, severity: str, blocked: bool) -> None:
        """Handle a violation; the kernel calls it."""
        violation = PolicyViolation(str(policy_name), str(description), str(severity), bool(blocked))
        execution = _here.get()
        if execution is not None and execution.owner is self:
            self._take(execution, violation)
        elif execution is None:
            with _lock:
                running = [other for other in _running if other.owner.kernel is self.kernel]
            if len(running) == 1 and running[0].context is not None:
                if running[0].owner is self:  # otherwise the other one gets it as well
                    running[0].context.copy().run(self._take, running[0], violation)
            else:
                logger.error("%s was reported outside of any attempt while %s run.", violation, len(running))

    def _take(self, execution: _Execution, violation: PolicyViolation) -> None:
        execution.violations.append(violation)
        if self.emit_violations:
            emit_annotation(
                {
                    "agent_os.violation": True,
                    "agent_os.policy": violation.policy_name,
                    "agent_os.severity": violation.severity,
                    "agent_os.blocked": violation.blocked,
                    "agent_os.description": violation.description,
                }
            )
        if self.fail_on_violation and violation.blocked:
            raise PolicyViolationError(violation)


_running: list[_Execution] = []
"""Of all agents in this process: a kernel may govern several."""

_lock = threading.Lock()
"""Held for moments, around it."""


class _Bound:
    """The agent within one attempt, as a kernel gets it: to be called with a task."""

    def __init__(self, agent: LitAgent[Any], call: Callable[[Any], Any]) -> None:
        self._agent = agent
        self._call = call

    def __call__(self, task: Any) -> Any:
        return self._call(task)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._agent, name)


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
