"""``Trainer.fit``: an agent, tasks and an algorithm, until it is done; again after a crash, from where it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lightstream.schemas.clock import Clock, SystemClock
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.settings import Settings
from lightstream.schemas.types import RolloutConfig

from .algorithm import Algorithm, AlgorithmContext, AlgorithmFunction, as_algorithm
from .ledger import TrainingLedger
from .report import StepObserver
from .runners import RunnerProcesses
from .store_thread import StoreThread
from .tasks import Dataset
from .trajectory_source import TrajectorySource

__all__ = ["RETRY_WHAT_IS_LOST", "Trainer"]

RETRY_WHAT_IS_LOST = RolloutConfig(max_attempts=3, retry_condition=["unresponsive", "timeout"])
"""An attempt whose Runner died is tried again. One that the agent failed is data."""


class Trainer:
    """Trains an agent.

    Args:
        algorithm: an :class:`Algorithm`, or a function of an :class:`AlgorithmContext`.
        n_runners: Runner processes to start; 0 where Runners run elsewhere.
        runner_concurrency: attempts at once in each.
        settings: ``None`` reads the environment.
        store: where rollouts are enqueued; by default the one on Kafka. Not closed if given.
        trainer_id: names the trainer across restarts. One process per id: a second one fences the first.
        run_id: names the run; by default the trainer's id.
        rollout_config: deadlines and retries of the rollouts.
        observers: called after each committed step.
        seed: of everything random.

    A second ``fit`` with the same ids goes on after the last committed step.
    """

    def __init__(
        self,
        *,
        algorithm: Algorithm | AlgorithmFunction,
        n_runners: int = 1,
        runner_concurrency: int = 16,
        settings: Settings | None = None,
        store: LightningStore | None = None,
        trainer_id: str = "trainer",
        run_id: str | None = None,
        rollout_config: RolloutConfig = RETRY_WHAT_IS_LOST,
        observers: Sequence[StepObserver] = (),
        seed: int = 0,
        clock: Clock | None = None,
    ) -> None:
        if n_runners < 0 or runner_concurrency < 1:
            raise ValueError(
                f"n_runners is {n_runners} (0 or more), runner_concurrency {runner_concurrency} (1 or more)"
            )
        self._algorithm = as_algorithm(algorithm)
        self._n_runners = n_runners
        self._runner_concurrency = runner_concurrency
        self._settings = settings
        self._store = store
        self._trainer_id = trainer_id
        self._run_id = run_id or trainer_id
        self._rollout_config = rollout_config
        self._observers = tuple(observers)
        self._seed = seed
        self._clock = clock or SystemClock()

    def fit(self, agent: Any, train_dataset: Dataset, val_dataset: Dataset | None = None) -> None:
        """Train until the algorithm is done.

        Args:
            agent: a LitAgent (see :func:`lightstream.producers.rollout`); ``None`` with ``n_runners=0``.
            train_dataset: the tasks.
            val_dataset: tasks to measure on, for algorithms that do.

        Raises:
            TrainingError: the agent cannot be handed to a Runner process, or ``fit`` was called while one imported the
                program (``if __name__ == "__main__":`` is missing): nothing has changed. Or a step could not be made;
                what is committed stays, and ``fit`` goes on from there.
            ServiceUnavailableError: Kafka, the worker or the proxy does not answer.
        """
        settings = self._settings or Settings.load()
        # Before the ledger opens, which fences whoever trains under this id.
        runners = RunnerProcesses(
            settings, agent, n=self._n_runners, n_concurrent=self._runner_concurrency, name=self._trainer_id
        )
        ledger = TrainingLedger(settings, trainer_id=self._trainer_id, run_id=self._run_id)
        history = ledger.open()
        source = TrajectorySource(settings, ledger.group_id)
        try:
            source.start(history.low_water)
            with runners:
                store = self._open_store(settings)
                try:
                    self._algorithm.run(
                        AlgorithmContext(
                            settings=settings,
                            run_id=self._run_id,
                            trainer_id=self._trainer_id,
                            train_dataset=train_dataset,
                            val_dataset=val_dataset,
                            seed=self._seed,
                            rollout_config=self._rollout_config,
                            store=store,
                            ledger=ledger,
                            source=source,
                            history=history,
                            observers=self._observers,
                            clock=self._clock,
                            check=runners.check,
                        )
                    )
                finally:
                    store.close()
        finally:
            source.close()
            ledger.close()

    def _open_store(self, settings: Settings) -> StoreThread:
        if self._store is not None:
            return StoreThread(self._store)
        from lightstream.store_views.stores import KafkaLightningStore

        store = KafkaLightningStore(settings)
        return StoreThread(store, opening=store.start(), closes_store=True)
