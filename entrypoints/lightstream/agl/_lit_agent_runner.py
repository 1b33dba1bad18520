"""``LitAgentRunner``: a Runner to step through by hand, on any store."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

from lightstream.producers import Hook, LitAgent, OtelTracer, Runner
from lightstream.producers.runner.attempt import AttemptRunner
from lightstream.schemas.errors import SettingsError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.settings import Settings
from lightstream.schemas.types import NamedResources, Rollout, RolloutMode

from ._where_spans_go import spans_beside

__all__ = ["LitAgentRunner", "StopSignal"]

TaskT = TypeVar("TaskT")

EVENT_LOOK_INTERVAL_S = 0.2
"""How long a set event may go unnoticed: it may be another process's, which cannot wake a loop here."""


class StopSignal(Protocol):
    """Says when to stop: a ``threading.Event``, one of ``multiprocessing``, or anything with this method."""

    def is_set(self) -> bool:
        """Whether to stop."""
        ...


class LitAgentRunner(Generic[TaskT]):
    """Runs an agent in this process, on a store of any kind. Where the store is not Kafka's, spans go into it.

    Args:
        tracer: routes the agent's spans; by default one of its own.
        max_rollouts: how many :meth:`iter` takes at most; ``None`` for no end.
    """

    def __init__(self, tracer: OtelTracer | None = None, max_rollouts: int | None = None) -> None:
        self._tracer_given = tracer
        self._max_rollouts = max_rollouts
        self._agent: LitAgent[Any] | None = None
        self._hooks: Sequence[Hook] = ()
        self._tracer: OtelTracer | None = None
        self._runner: Runner | None = None
        self._store: LightningStore | None = None

    def init(self, agent: LitAgent[Any], *, hooks: Sequence[Hook] | None = None, **_: Any) -> None:
        """Say what to run, and which hooks around it."""
        self._agent, self._hooks = agent, tuple(hooks or ())
        self._tracer = self._tracer_given or OtelTracer()
        self._tracer.init()

    def init_worker(self, worker_id: int, store: LightningStore, **_: Any) -> None:
        """Say where rollouts come from."""
        if self._agent is None or self._tracer is None:
            raise SettingsError("this Runner has no agent yet.", next_step="Call init(agent), or use run_context.")
        self._store = store
        self._tracer.init_worker(worker_id, spans_beside(store))
        name = f"Worker-{worker_id}"
        self._runner = Runner(store, self._agent, tracer=self._tracer, worker_id=name, hooks=self._hooks)

    def teardown_worker(self, worker_id: int, **_: Any) -> None:
        """Forget the store. What the agent's spans were written to stays open."""
        if self._tracer is not None:
            self._tracer.teardown_worker(worker_id)
        self._runner = self._store = None

    def teardown(self, **_: Any) -> None:
        """Forget the agent."""
        if self._tracer is not None:
            self._tracer.teardown()
            if self._tracer_given is None:
                self._tracer.close()
        self._agent, self._tracer, self._hooks = None, None, ()

    @contextmanager
    def run_context(
        self,
        *,
        agent: LitAgent[Any],
        store: LightningStore,
        hooks: Sequence[Hook] | None = None,
        worker_id: int | None = None,
    ) -> Generator[LitAgentRunner[TaskT]]:
        """The four calls above around a block."""
        self.init(agent, hooks=hooks)
        try:
            self.init_worker(worker_id or 0, store)
            try:
                yield self
            finally:
                self.teardown_worker(worker_id or 0)
        finally:
            self.teardown()

    async def step(
        self,
        input: TaskT,  # noqa: A002  # the interface's name
        *,
        resources: NamedResources | None = None,
        mode: RolloutMode | None = None,
        event: StopSignal | None = None,  # the interface's; one attempt is not interrupted
    ) -> Rollout:
        """Run one task past the queue; returns its rollout.

        Args:
            resources: stored as the latest first; by default the latest there are.

        Raises:
            Exception: what the agent raised; the attempt was reported as failed.
        """
        runner, store, agent, tracer = self._ready()
        resources_id = None if resources is None else (await store.add_resources(resources)).resources_id
        started = await store.start_rollout(input, mode, resources_id, worker_id=runner.worker_id)
        settings = Settings.load()
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
        return await store.get_rollout_by_id(started.rollout_id) or started

    async def iter(self, *, event: StopSignal | None = None) -> None:
        """Take rollouts from the queue until ``event`` is set, or ``max_rollouts`` were run."""
        runner = self._ready()[0]
        running = asyncio.create_task(runner.run(self._max_rollouts))
        try:
            while not running.done():
                if event is not None and event.is_set():
                    runner.stop()
                await asyncio.wait({running}, timeout=EVENT_LOOK_INTERVAL_S)
        finally:
            runner.stop()
            await running

    def _ready(self) -> tuple[Runner, LightningStore, LitAgent[Any], OtelTracer]:
        if self._runner is None or self._store is None or self._agent is None or self._tracer is None:
            raise SettingsError("this Runner has no store yet.", next_step="Call init_worker, or use run_context.")
        return self._runner, self._store, self._agent, self._tracer
