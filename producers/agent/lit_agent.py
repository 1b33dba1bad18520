"""The base class of agents."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from lightstream.schemas.errors import SettingsError
from lightstream.schemas.types import NamedResources, Rollout

if TYPE_CHECKING:
    from ..tracer import Tracer


class _WeakHandle:
    """A weak reference to ``target``. Pickled or copied, it refers to nothing."""

    __slots__ = ("_reference",)

    def __init__(self, target: Any = None) -> None:
        self._reference: weakref.ReferenceType[Any] | None = None if target is None else weakref.ref(target)

    def get(self) -> Any:
        """Return the target, or ``None``."""
        return None if self._reference is None else self._reference()

    def __reduce__(self) -> tuple[type[_WeakHandle], tuple[()]]:
        return _WeakHandle, ()


TaskT = TypeVar("TaskT")

RolloutResult: TypeAlias = float | Mapping[str, float] | list[Any] | None
"""The final reward (see ``emit_reward``), ``None`` where the agent emits rewards itself, or has none, or a list of
spans that were made elsewhere (``Span``, ``SpanCoreFields``, or the OpenTelemetry SDK's), which are kept as its own."""


class LitAgent(Generic[TaskT]):
    """An agent. Override one of the six methods, or several.

    ``rollout`` and ``rollout_async`` serve every mode; the ``training_…`` and ``validation_…`` forms, where
    overridden, serve theirs. Synchronous methods run in threads of their own, asynchronous ones in the Runner's loop.

    Args:
        trained_agents: only kept; the trainer decides which agents' calls are trained on. A subclass
            need not call this ``__init__``.
    """

    trained_agents: str | None = None
    _trainer_set: _WeakHandle = _WeakHandle()
    _runner_set: _WeakHandle = _WeakHandle()

    def __init__(self, *, trained_agents: str | None = None) -> None:
        self.trained_agents = trained_agents

    def set_trainer(self, trainer: Any) -> None:
        """Set the Trainer that trains this agent. It is not kept alive, nor sent to other processes."""
        self._trainer_set = _WeakHandle(trainer)

    def get_trainer(self) -> Any:
        """The Trainer that trains this agent, in this process.

        Raises:
            SettingsError: none was set, or it is gone.
        """
        return self._there(self._trainer_set, "Trainer")

    @property
    def trainer(self) -> Any:
        """As :meth:`get_trainer`."""
        return self.get_trainer()

    def set_runner(self, runner: Any) -> None:
        """Set the Runner that runs this agent: a Runner does it when it is created. Of several the last one counts."""
        self._runner_set = _WeakHandle(runner)

    def get_runner(self) -> Any:
        """The Runner that runs this agent, in this process.

        Raises:
            SettingsError: none was set, or it is gone.
        """
        return self._there(self._runner_set, "Runner")

    @property
    def runner(self) -> Any:
        """As :meth:`get_runner`."""
        return self.get_runner()

    def get_tracer(self) -> Tracer:
        """The tracer of the attempt that runs here; outside of any, that of the Runner or the Trainer.

        Raises:
            SettingsError: there is none.
        """
        from ..tracer import get_active_tracer

        owners = (self._runner_set.get(), self._trainer_set.get())
        tracer: Tracer | None
        for tracer in (get_active_tracer(), *(getattr(owner, "tracer", None) for owner in owners)):
            if tracer is not None:
                return tracer
        raise SettingsError(
            f"{type(self).__name__} runs outside of any attempt, so it has no tracer.",
            next_step="Ask while a Runner runs it, or inside `trace_context(...)`.",
        )

    @property
    def tracer(self) -> Tracer:
        """As :meth:`get_tracer`."""
        return self.get_tracer()

    def _there(self, handle: _WeakHandle, what: str) -> Any:
        owner = handle.get()
        if owner is None:
            raise SettingsError(
                f"{type(self).__name__} has no {what} in this process.",
                next_step=f"Ask while a {what} with this agent exists, or call set_{what.lower()}(…) first.",
            )
        return owner

    def is_async(self) -> bool:
        """Return whether the Runner calls the asynchronous methods: true when any of them is overridden."""
        names = ("rollout_async", "training_rollout_async", "validation_rollout_async")
        return any(getattr(type(self), name) is not getattr(LitAgent, name) for name in names)

    def rollout(self, task: TaskT, resources: NamedResources, rollout: Rollout) -> RolloutResult:
        """Work on ``task`` with ``resources``.

        Args:
            task: the rollout's input.
            resources: name -> model endpoint, prompt, …, as they were when the attempt started.
            rollout: which rollout and attempt this is.
        """
        raise NotImplementedError(f"{type(self).__name__} must have a rollout or rollout_async method")

    async def rollout_async(self, task: TaskT, resources: NamedResources, rollout: Rollout) -> RolloutResult:
        """As :meth:`rollout`, asynchronously."""
        raise NotImplementedError(f"{type(self).__name__} must have a rollout or rollout_async method")

    def training_rollout(self, task: TaskT, resources: NamedResources, rollout: Rollout) -> RolloutResult:
        """:meth:`rollout`, unless overridden; for rollouts of mode ``train``."""
        return self.rollout(task, resources, rollout)

    def validation_rollout(self, task: TaskT, resources: NamedResources, rollout: Rollout) -> RolloutResult:
        """:meth:`rollout`, unless overridden; for rollouts of the other modes."""
        return self.rollout(task, resources, rollout)

    async def training_rollout_async(self, task: TaskT, resources: NamedResources, rollout: Rollout) -> RolloutResult:
        """:meth:`rollout_async`, unless overridden; for rollouts of mode ``train``."""
        return await self.rollout_async(task, resources, rollout)

    async def validation_rollout_async(self, task: TaskT, resources: NamedResources, rollout: Rollout) -> RolloutResult:
        """:meth:`rollout_async`, unless overridden; for rollouts of the other modes."""
        return await self.rollout_async(task, resources, rollout)

    def on_rollout_start(self, task: Any, runner: Any, tracer: Tracer) -> None:
        """Called before a task by Runners that take no hooks (:class:`Hook`)."""

    def on_rollout_end(self, task: Any, rollout: Any, runner: Any, tracer: Tracer) -> None:
        """Called after a task by Runners that take no hooks, with the report of the task."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call :meth:`rollout` directly."""
        return self.rollout(*args, **kwargs)
