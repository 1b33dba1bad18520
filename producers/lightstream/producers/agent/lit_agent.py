"""The base class of agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from lightstream.schemas.errors import SettingsError
from lightstream.schemas.types import NamedResources, Rollout

if TYPE_CHECKING:
    from ..tracer import Tracer

__all__ = ["LitAgent", "RolloutResult", "TaskT"]

TaskT = TypeVar("TaskT")

RolloutResult: TypeAlias = float | Mapping[str, float] | list[Any] | None
"""The final reward (see ``emit_reward``), ``None`` where the agent emits rewards itself, or has none, or a list of
spans that were made elsewhere (``Span``, ``SpanCoreFields``, or the OpenTelemetry SDK's), which are kept as its own."""


class LitAgent(Generic[TaskT]):
    """An agent. Override one of the six methods, or several.

    ``rollout`` and ``rollout_async`` serve every mode; the ``training_…`` and ``validation_…`` forms, where
    overridden, serve theirs. Synchronous methods run in threads of their own, asynchronous ones in the Runner's loop.

    Args:
        trained_agents: kept for whoever asks; which agents' calls are trained on is the trainer's to say. A subclass
            need not call this ``__init__``.
    """

    trained_agents: str | None = None

    def __init__(self, *, trained_agents: str | None = None) -> None:
        self.trained_agents = trained_agents

    def get_tracer(self) -> Tracer:
        """The tracer of the attempt that runs here.

        Raises:
            SettingsError: none runs here.
        """
        from ..tracer import get_active_tracer

        tracer = get_active_tracer()
        if tracer is None:
            raise SettingsError(
                f"{type(self).__name__} runs outside of any attempt, so it has no tracer.",
                next_step="Ask while a Runner runs it, or inside `trace_context(...)`.",
            )
        return tracer

    @property
    def tracer(self) -> Tracer:
        """As :meth:`get_tracer`."""
        return self.get_tracer()

    def is_async(self) -> bool:
        """Whether the Runner calls the asynchronous methods: true when any of them is overridden."""
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

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call :meth:`rollout` directly."""
        return self.rollout(*args, **kwargs)
