"""``Trainer`` with Agent Lightning's arguments: algorithms on a store run here, those that train are handed on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from lightstream.producers import Hook, LitAgent, OtelTracer, Runner
from lightstream.schemas.errors import SettingsError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.settings import Settings
from lightstream.schemas.types import NamedResources
from lightstream.trainers.tasks import Dataset

from ._algorithm import Algorithm, Baseline, FastAlgorithm, algo
from ._where_spans_go import spans_beside

__all__ = ["Trainer"]


class Trainer:
    """Brings an agent, tasks and an algorithm together.

    An algorithm on a store (:class:`Algorithm`, or a function made one by :func:`algo`) runs in this process, beside
    one Runner that has ``n_runners`` attempts at once. ``VERL`` and other algorithms of ``lightstream.trainers`` are
    run by the Trainer there.

    Args:
        algorithm: ``None`` for :meth:`dev` alone.
        n_runners: attempts at once; of algorithms that train, Runner processes.
        max_rollouts: after this many per Runner they stop.
        initial_resources: handed to the algorithm.
        tracer: routes the agent's spans; by default one of its own.
        adapter: turns spans into data, for algorithms that ask; by default ``TracerTraceToTriplet()``.
        store: where rollouts are; by default the one on Kafka, for :meth:`dev` one in memory.
        llm_proxy: handed to the algorithm.
        hooks: one or several, called around each attempt.
        others: arguments of ``lightstream.trainers.Trainer``, for algorithms that train.
    """

    def __init__(
        self,
        *,
        algorithm: Any = None,
        n_runners: int = 1,
        max_rollouts: int | None = None,
        initial_resources: NamedResources | None = None,
        tracer: OtelTracer | None = None,
        adapter: Any = None,
        store: LightningStore | None = None,
        llm_proxy: Any = None,
        hooks: Hook | Sequence[Hook] | None = None,
        **others: Any,
    ) -> None:
        if algorithm is not None and not hasattr(algorithm, "run"):
            algorithm = algo(algorithm)
        self.algorithm: Any = algorithm
        self.n_runners = n_runners
        self.max_rollouts = max_rollouts
        self.initial_resources = initial_resources
        self.tracer = tracer
        self.adapter = adapter
        self.store = store
        self.llm_proxy = llm_proxy
        self.hooks: Sequence[Hook] = (hooks,) if isinstance(hooks, Hook) else tuple(hooks or ())
        self._others = others
        on_a_store = self.algorithm is None or isinstance(self.algorithm, Algorithm)
        self._training: Any = None if on_a_store else self._trainer_that_trains()
        if self._training is None and others:
            raise SettingsError(
                f"Trainer takes no {', '.join(sorted(others))} here.",
                next_step="Strategies and components by name have no counterpart: docs/tracing.md says what to use.",
            )

    def fit(self, agent: LitAgent[Any], train_dataset: Any = None, val_dataset: Any = None) -> None:
        """Run the algorithm to its end.

        Raises:
            SettingsError: there is no algorithm.
            Exception: what the algorithm raised.
        """
        if self.algorithm is None:
            raise SettingsError("Trainer.fit needs an algorithm.", next_step="Trainer(algorithm=…), or dev().")
        if self._training is not None:
            self._training.fit(agent, train_dataset, val_dataset)
            return
        from lightstream.store_views.stores import KafkaLightningStore

        store = self.store or KafkaLightningStore(Settings.load())
        asyncio.run(self._run(self.algorithm, agent, train_dataset, val_dataset, store))

    def dev(self, agent: LitAgent[Any], train_dataset: Any = None, val_dataset: Any = None) -> None:
        """Roll the tasks out without a service, to see whether the agent runs: by :class:`Baseline`, in memory.

        Raises:
            TypeError: the Trainer's algorithm is not a :class:`FastAlgorithm`.
        """
        from lightstream.store_views.stores import InMemoryLightningStore

        algorithm = Baseline() if self.algorithm is None else self.algorithm
        if not isinstance(algorithm, FastAlgorithm):
            raise TypeError(f"Trainer.dev takes a FastAlgorithm, or none; {type(algorithm).__name__} is none")
        store = self.store or InMemoryLightningStore()
        asyncio.run(self._run(algorithm, agent, train_dataset, val_dataset, store))

    async def _run(
        self,
        algorithm: Algorithm,
        agent: LitAgent[Any],
        train_dataset: Dataset | None,
        val_dataset: Dataset | None,
        store: LightningStore,
    ) -> None:
        if self.store is None:
            await store.start()
        tracer = self.tracer or OtelTracer()
        tracer.init_worker(0, spans_beside(store))
        try:
            self._prepare(algorithm, store)
            runner = Runner(store, agent, tracer=tracer, n_concurrent=self.n_runners, hooks=self.hooks)
            await _beside(runner, self._rollouts_in_all(), algorithm, train_dataset, val_dataset)
        finally:
            tracer.teardown_worker(0)
            if self.tracer is None:
                await asyncio.to_thread(tracer.close)
            if self.store is None:
                await store.close()

    def _rollouts_in_all(self) -> int | None:
        return None if self.max_rollouts is None else self.max_rollouts * self.n_runners

    def _prepare(self, algorithm: Algorithm, store: LightningStore) -> None:
        from lightstream.stream_processors.adapters import TracerTraceToTriplet

        algorithm.set_trainer(self)
        algorithm.set_store(store)
        algorithm.set_adapter(self.adapter or TracerTraceToTriplet())
        algorithm.set_llm_proxy(self.llm_proxy)
        algorithm.set_initial_resources(self.initial_resources)

    def _trainer_that_trains(self) -> Any:
        """The Trainer of an algorithm that trains.

        Raises:
            SettingsError: an argument was given that it has no use for.
        """
        from lightstream import trainers

        mine = ("max_rollouts", "initial_resources", "tracer", "adapter", "llm_proxy", "hooks")
        if unused := [name for name in mine if getattr(self, name)]:
            raise SettingsError(
                f"{type(self.algorithm).__name__} has no use for {', '.join(unused)}.",
                next_step="Its Runners are processes of their own, and read their settings from the environment.",
            )
        return trainers.Trainer(algorithm=self.algorithm, n_runners=self.n_runners, store=self.store, **self._others)


async def _beside(
    runner: Runner,
    rollouts: int | None,
    algorithm: Algorithm,
    train_dataset: Dataset | None,
    val_dataset: Dataset | None,
) -> None:
    """Run the algorithm while a Runner works in a thread of its own; a Runner that fails ends the algorithm too."""
    working = asyncio.create_task(asyncio.to_thread(asyncio.run, runner.run(rollouts)))
    if algorithm.is_async():
        deciding = asyncio.ensure_future(algorithm.run(train_dataset, val_dataset))
    else:
        deciding = asyncio.ensure_future(asyncio.to_thread(algorithm.run, train_dataset, val_dataset))
    try:
        await asyncio.wait({working, deciding}, return_when=asyncio.FIRST_COMPLETED)
        if working.done() and (error := working.exception()) is not None:
            deciding.cancel()
            raise error
        await deciding
    finally:
        runner.stop()
        await asyncio.wait({working})
