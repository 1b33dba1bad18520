"""Runs an algorithm on a store, together with its Runners, as the Trainer's strategy says."""

from __future__ import annotations

import asyncio
import copy
import functools
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lightstream.producers import OtelTracer
from lightstream.producers.runner.daemon_thread import call_in_thread
from lightstream.schemas.interfaces import LightningStore
from lightstream.trainers.run.tasks import Dataset

from ..algorithm import Algorithm
from ..execution import ExecutionEvent, SharedMemoryExecutionStrategy
from ..runner import LitAgentRunner, Runner
from .init_utils import build_component, instantiate_component

if TYPE_CHECKING:
    from .trainer import Trainer

__all__ = ["SharedTracer", "run_on_store"]

_RUNNER: type[Runner[Any]] = Runner

EVENT_LOOK_INTERVAL_S = 0.1
"""A set event may go unnoticed for this long where there is no algorithm."""

CANCEL_S = 1.0
"""An algorithm may go on for this long after a Runner failed: none may be left to run what it waits for."""

DRAIN_S = 30.0
"""Attempts that run at the end of an algorithm may take this long to finish, where no strategy says otherwise."""


class SharedTracer:
    """Thread-safe. In a process that was forked it is another one."""

    def __init__(self, given: OtelTracer | None) -> None:
        self._given = given
        self._own: OtelTracer | None = None
        self._of_process = 0
        self._users = 0
        self._lock = threading.Lock()

    @contextmanager
    def used(self) -> Generator[OtelTracer]:
        """The tracer, inside."""
        if self._given is not None:
            yield self._given
            return
        with self._lock:
            if self._own is None or self._of_process != os.getpid():
                self._own, self._of_process, self._users = OtelTracer(), os.getpid(), 0
            tracer = self._own
            self._users += 1
        try:
            yield tracer
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._own = None
                    tracer.close()


def run_on_store(
    trainer: Trainer,
    algorithm: Algorithm | None,
    agent: Any,
    train_dataset: Dataset | None,
    val_dataset: Dataset | None,
    kept_in: LightningStore,
) -> None:
    """Run ``algorithm`` to its end; without one, until something stops the Runners.

    Raises:
        Exception: what the algorithm or a Runner raised.
    """
    strategy = trainer.strategy or SharedMemoryExecutionStrategy(
        trainer.n_runners, "algorithm", join_timeout=2 * DRAIN_S, graceful_delay=CANCEL_S, drain_delay=DRAIN_S
    )
    tracers, opening, opened = SharedTracer(trainer.tracer), threading.Lock(), False

    async def open_once() -> None:
        """A store that the Trainer made starts where it is used first: after processes were forked."""
        nonlocal opened
        with opening:
            if trainer.starts(kept_in) and not opened:
                opened = True
                await kept_in.start()

    async def decide(store: LightningStore, event: ExecutionEvent) -> None:
        await asyncio.to_thread(asyncio.run, open_once())
        if algorithm is None:
            while not event.is_set():  # noqa: ASYNC110  # a thread or process sets it
                await asyncio.sleep(EVENT_LOOK_INTERVAL_S)
            return
        _prepare(trainer, algorithm, store)
        if algorithm.is_async():
            await algorithm.run(train_dataset, val_dataset)
        else:
            outcome = await call_in_thread(functools.partial(algorithm.run, train_dataset, val_dataset), "algorithm")
            if outcome.error is not None:
                raise outcome.error

    async def work(store: LightningStore, worker_id: int, event: ExecutionEvent) -> None:
        if store is kept_in:
            await asyncio.to_thread(asyncio.run, open_once())
        with tracers.used() as tracer:
            runner = _make_runner(trainer, tracer)
            with runner.run_context(agent=agent, store=store, hooks=trainer.hooks, worker_id=worker_id):
                await runner.iter(event=event)

    try:
        strategy.execute(decide, work, kept_in)
    finally:
        if opened and kept_in is not trainer.store:
            asyncio.run(kept_in.close())


def _make_runner(trainer: Trainer, tracer: OtelTracer) -> Runner[Any]:
    if isinstance(trainer.runner, Runner):
        return copy.copy(trainer.runner)
    defaults = {"tracer": tracer, "max_rollouts": trainer.max_rollouts}
    runner = build_component(
        trainer.runner,
        expected_type=_RUNNER,
        spec_name="runner",
        default_factory=lambda: instantiate_component(LitAgentRunner, None, defaults),
        optional_defaults=defaults,
    )
    assert runner is not None  # noqa: S101  # there is a default
    return runner


def _prepare(trainer: Trainer, algorithm: Algorithm, store: LightningStore) -> None:
    algorithm.set_trainer(trainer)
    algorithm.set_store(store)
    algorithm.set_adapter(trainer.adapter or algorithm.default_adapter())
    algorithm.set_llm_proxy(trainer.llm_proxy)
    algorithm.set_initial_resources(trainer.initial_resources)
