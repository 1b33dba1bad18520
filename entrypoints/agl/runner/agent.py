"""``LitAgentRunner``: a Runner to step through by hand, on any store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal, TypeVar

from lightstream.producers import Hook, LitAgent, OtelTracer
from lightstream.producers import Runner as RollingRunner
from lightstream.producers.instrumentation import instrument_as_asked
from lightstream.producers.runner import Outcome
from lightstream.producers.runner.attempt import AttemptRunner
from lightstream.producers.runner.hooks import call_hook
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.records import ANY_RUN
from lightstream.schemas.types import NamedResources, Rollout, RolloutMode

from .._store_spans import store_for_spans
from ..execution import ExecutionEvent
from .base import Runner

__all__ = ["LitAgentRunner"]

TaskT = TypeVar("TaskT")

EVENT_LOOK_INTERVAL_S = 0.2
"""A set event may go unnoticed for this long: it may be another process's, which cannot wake a loop here."""


class _OwnRunner(Hook):
    """Calls ``hook`` with ``runner`` in the place of the one that works within it."""

    def __init__(self, hook: Hook, runner: Any) -> None:
        self._hook = hook
        self._runner = runner

    async def on_rollout_start(self, **given: Any) -> None:
        await call_hook(self._hook.on_rollout_start, **given | {"runner": self._runner})

    async def on_trace_start(self, **given: Any) -> None:
        await call_hook(self._hook.on_trace_start, **given | {"runner": self._runner})

    async def on_trace_end(self, **given: Any) -> None:
        await call_hook(self._hook.on_trace_end, **given | {"runner": self._runner})

    async def on_rollout_end(self, **given: Any) -> None:
        await call_hook(self._hook.on_rollout_end, **given | {"runner": self._runner})


class LitAgentRunner(Runner[TaskT]):
    """Runs an agent in this process, on a store of any kind. Where the store is not Kafka's, spans go into it.

    Args:
        tracer: routes the agent's spans; by default one of its own.
        max_rollouts: how many :meth:`iter` takes at most; ``None`` for no end.
        poll_interval, interval_jitter: seconds that work may wait for its Runner. It waits for less: a store answers
            as soon as there is some.
        heartbeat_interval: seconds between two signs of life at most; a third of what a rollout allows if that is less.
        heartbeat_launch_mode: ``asyncio`` alone: signs of life are sent from the Runner's loop.
        heartbeat_include_gpu: not here.

    Raises:
        SettingsError: signs of life are asked for that there are none of.
    """

    def __init__(
        self,
        tracer: OtelTracer | None = None,
        max_rollouts: int | None = None,
        poll_interval: float = 5.0,
        heartbeat_interval: float | None = None,
        interval_jitter: float = 0.5,
        heartbeat_launch_mode: Literal["asyncio"] = "asyncio",
        heartbeat_include_gpu: bool = False,
    ) -> None:
        if heartbeat_launch_mode != "asyncio" or heartbeat_include_gpu:
            raise SettingsError(
                f"heartbeats of mode {heartbeat_launch_mode!r} with GPU figures {heartbeat_include_gpu} are not sent.",
                next_step="Leave both out: synchronous agents run in threads, so that the loop goes on beating.",
            )
        self._tracer_given = tracer
        self._max_rollouts = max_rollouts
        self._heartbeat_interval_s = heartbeat_interval
        self._agent: LitAgent[Any] | None = None
        self._hooks: Sequence[Hook] = ()
        self._tracer: OtelTracer | None = tracer
        self._runner: RollingRunner | None = None
        self._store: LightningStore | None = None

    @property
    def tracer(self) -> OtelTracer:
        """The tracer that routes the agent's spans.

        Raises:
            SettingsError: none was given, and there is no agent yet.
        """
        if self._tracer is None:
            raise SettingsError("this Runner has no tracer yet.", next_step="Call init(agent), or give it one.")
        return self._tracer

    def get_agent(self) -> LitAgent[Any]:
        """The agent that it runs.

        Raises:
            SettingsError: nothing yet.
        """
        if self._agent is None:
            raise SettingsError("this Runner has no agent yet.", next_step="Call init(agent), or use run_context.")
        return self._agent

    def get_store(self) -> LightningStore:
        """The store that rollouts come from.

        Raises:
            SettingsError: nowhere yet.
        """
        return self._ready()[1]

    def get_worker_id(self) -> str:
        """Its name in the store."""
        return "Worker-Unknown" if self.worker_id is None else f"Worker-{self.worker_id}"

    def init(self, agent: LitAgent[Any], *, hooks: Sequence[Hook] | None = None, **kwargs: Any) -> None:
        """Set the agent to run, and the hooks around it."""
        self._agent, self._hooks = agent, tuple(_OwnRunner(hook, self) for hook in hooks or ())
        self._tracer = self._tracer_given or OtelTracer()
        self._tracer.init()
        agent.set_runner(self)

    def init_worker(self, worker_id: int, store: LightningStore, **kwargs: Any) -> None:
        """Set the store that rollouts come from."""
        agent, tracer = self.get_agent(), self.tracer
        self._store, self.worker_id = store, worker_id
        takes_spans = store_for_spans(store)
        tracer.init_worker(worker_id, takes_spans)
        self._runner = RollingRunner(
            store,
            agent,
            run_id=ANY_RUN,
            tracer=tracer,
            worker_id=None if takes_spans is None else self.get_worker_id(),  # a cluster has Runners of many machines
            hooks=self._hooks,
            heartbeat_interval_s_max=self._heartbeat_interval_s,
        )
        agent.set_runner(self)

    def teardown_worker(self, worker_id: int, *args: Any, **kwargs: Any) -> None:
        """Forget the store. A store that took the agent's spans stays open."""
        if self._tracer is not None:
            self._tracer.teardown_worker(worker_id)
        self._runner = self._store = self.worker_id = None

    def teardown(self, *args: Any, **kwargs: Any) -> None:
        """Forget the agent."""
        if self._tracer is not None:
            self._tracer.teardown()
            if self._tracer_given is None:
                self._tracer.close()
        self._agent, self._tracer, self._hooks = None, self._tracer_given, ()

    async def step(
        self,
        input: TaskT,  # noqa: A002  # the interface's name
        *,
        resources: NamedResources | None = None,
        mode: RolloutMode | None = None,
        event: ExecutionEvent | None = None,  # the interface's; one attempt is not interrupted
    ) -> Rollout:
        """Run one task outside the queue; returns its rollout.

        Args:
            resources: stored as the latest first; by default the latest.

        Raises:
            Exception: what the agent raised; the attempt was reported as failed.
        """
        return (await self._step(input, resources, mode))[1]

    async def _step(
        self, task: Any, resources: NamedResources | None, mode: RolloutMode | None
    ) -> tuple[Outcome, Rollout]:
        """Run one task; returns how it went, and the rollout as the store has it then."""
        runner, store, agent, tracer = self._ready()
        settings = Settings.load()
        instrument_as_asked(settings.instrument)
        resources_id = None if resources is None else (await store.add_resources(resources)).resources_id
        started = await store.start_rollout(task, mode, resources_id, worker_id=runner.worker_id)
        attempts = AttemptRunner(
            runner,
            store,
            agent,
            tracer,
            self._hooks,
            default_timeout_s=settings.rollout_timeout_s,
        )
        outcome = await attempts.run(started)
        if outcome.error is not None:
            raise outcome.error
        return outcome, await store.get_rollout_by_id(started.rollout_id) or started

    async def iter(self, *, event: ExecutionEvent | None = None) -> None:
        """Take rollouts from the queue until ``event`` is set, or ``max_rollouts`` were run."""
        runner = self._ready()[0]
        running = asyncio.create_task(runner.run(self._max_rollouts))
        try:
            while not running.done():
                if event is not None and event.is_set():
                    runner.stop()
                await asyncio.wait({running}, timeout=EVENT_LOOK_INTERVAL_S)
        except asyncio.CancelledError:
            running.cancel()
            raise
        finally:
            runner.stop()
            await running

    def _ready(self) -> tuple[RollingRunner, LightningStore, LitAgent[Any], OtelTracer]:
        if self._runner is None or self._store is None or self._agent is None or self._tracer is None:
            raise SettingsError("this Runner has no store yet.", next_step="Call init_worker, or use run_context.")
        return self._runner, self._store, self._agent, self._tracer
