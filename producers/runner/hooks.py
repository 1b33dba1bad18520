"""Hooks: a user's code, called around each attempt."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from lightstream.schemas.types import AttemptedRollout

from .outcome import Outcome

if TYPE_CHECKING:
    from ..agent import LitAgent
    from ..tracer import OtelTracer
    from .runner import Runner


class Hook:
    """Override the methods that you need. An exception in a hook fails the attempt, like one of the agent.

    A method is given what it names: ``outcome`` may be left out, and ``on_rollout_end`` may ask for ``spans``, those
    of the attempt.
    """

    async def on_rollout_start(self, *, agent: LitAgent[Any], runner: Runner, rollout: AttemptedRollout) -> None:
        """Before resources are fetched and anything is traced."""

    async def on_trace_start(
        self, *, agent: LitAgent[Any], runner: Runner, tracer: OtelTracer, rollout: AttemptedRollout
    ) -> None:
        """Just before the agent runs; spans made here belong to the attempt."""

    async def on_trace_end(
        self, *, agent: LitAgent[Any], runner: Runner, tracer: OtelTracer, rollout: AttemptedRollout, outcome: Outcome
    ) -> None:
        """After the agent ran, before its spans are flushed; spans made here belong to the attempt."""

    async def on_rollout_end(
        self, *, agent: LitAgent[Any], runner: Runner, rollout: AttemptedRollout, outcome: Outcome
    ) -> None:
        """After the end was reported. An exception here is logged, as nothing can be changed any more."""


async def call_hook(method: Callable[..., Awaitable[None]], **given: Any) -> None:
    """Call a hook's method with the arguments that it takes."""
    parameters = inspect.signature(method).parameters
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        given = {name: value for name, value in given.items() if name in parameters}
    await method(**given)
