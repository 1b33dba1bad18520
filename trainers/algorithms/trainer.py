"""``Trainer.fit``: an agent, tasks and an algorithm, until it is done; again after a crash, from where it was."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlencode

from lightstream.runtime.clock import NANOS_PER_SECOND, Clock, SystemClock
from lightstream.runtime.disk import DiskRoom
from lightstream.runtime.health_port import served_health
from lightstream.runtime.interrupts import Interrupts
from lightstream.runtime.loop_thread import LoopThread
from lightstream.runtime.own_spans import OwnSpans
from lightstream.runtime.services import find
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import LightstreamError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import Assembly, EnqueueRolloutRequest, NamedResources, Rollout, RolloutConfig

from ..ledger.kafka import KafkaLedger
from ..loop.steps import Steps
from ..rollouts.groups.deadlines import longest_rollout_s
from ..rollouts.groups.source import LoggedGroups
from ..rollouts.groups.waiting import RunsRollouts
from ..rollouts.rollouts import RETRY_WHAT_IS_LOST, Rollouts
from ..rollouts.trajectory_source import TrajectorySource
from ..run.data_sets import as_tasks
from ..run.identity import check_same_run, identity_of_dataset, name_of_program
from ..run.lock import RunLock, checked_name
from ..run.progress import Progress
from ..run.report import StepObserver, StepReport
from ..run.run import Run
from ..run.runners import RunnerProcesses
from ..run.series import TrainingSeries
from ..run.tasks import Dataset
from ..run.trackers import Tracker, Trackers
from ..run.training_log import TrainingLog, log_path
from ..servers.following import FollowingServers
from .context import AlgorithmContext
from .interface import Algorithm, AlgorithmFunction, as_algorithm

if TYPE_CHECKING:
    from lightstream.producers import Hook, OtelTracer

Enqueue: TypeAlias = "Callable[[Sequence[EnqueueRolloutRequest]], Sequence[Rollout]]"


@dataclass(kw_only=True, eq=False, repr=False)
class Trainer:
    """Trains an agent.

    Attributes:
        algorithm: an :class:`Algorithm`, or a function of an :class:`AlgorithmContext`.
        n_runners: Runner processes to start; 0 where Runners run elsewhere.
        runner_concurrency: attempts at once in each.
        settings: ``None`` reads the environment.
        hooks: called around each attempt, in the Runner processes: they are handed over as the agent is.
        tracer: makes the tracer of each Runner process, and is handed over as the agent is; by default ``OtelTracer``.
        initial_resources: what agents are given beside what the algorithm makes, by name, in each version of it.
        store: where rollouts are enqueued; by default the one on Kafka. Not closed if given.
        trainer_id: names the trainer across restarts; by default as the program is called. One process per id and per
            run: a second one is refused.
        run_id: names the run; by default the trainer's id.
        rollout_config: deadlines and retries of the rollouts.
        assembly: credit, reward match and trained agents of this run, in place of the worker's settings: rollouts that
            are enqueued from now on go by them.
        take_over: do not ask whether another process trains this run.
        observers: called after each committed step; one that raises is logged, and training goes on.
        trackers: told of each committed step, each in a thread of its own: see :class:`~.trackers.Trackers`.
        seed: of everything random: the initial model's warm-up, the order of tasks and mini-batches, and each call
            that has no seed of its own.
        progress: print a line for each step, and the agent's first errors.

    A second ``fit`` with the same ids goes on after the last committed step. What goes wrong is one message; its
    traceback is in ``<data_dir>/logs/<trainer_id>.log``.
    """

    algorithm: Algorithm | AlgorithmFunction
    n_runners: int = 1
    runner_concurrency: int = 16
    settings: Settings | None = None
    hooks: Sequence[Hook] = ()
    tracer: Callable[[], OtelTracer] | None = None
    initial_resources: NamedResources | None = None
    store: LightningStore | None = None
    trainer_id: str | None = None
    run_id: str | None = None
    rollout_config: RolloutConfig = field(default_factory=lambda: RETRY_WHAT_IS_LOST)
    assembly: Assembly | None = None
    take_over: bool = False
    observers: Sequence[StepObserver] = ()
    trackers: Sequence[Tracker] = ()
    seed: int = 0
    progress: bool = True
    clock: Clock | None = None

    def __post_init__(self) -> None:
        if self.n_runners < 0 or self.runner_concurrency < 1:
            raise ValueError(
                f"n_runners is {self.n_runners} (0 or more), runner_concurrency {self.runner_concurrency} (1 or more)"
            )
        if self.seed < 0:
            raise ValueError(f"seed is {self.seed}; 0 or more is needed")
        trainer_id = name_of_program() if self.trainer_id is None else checked_name("trainer_id", self.trainer_id)
        self._trainer_id = trainer_id
        self._run_id = trainer_id if self.run_id is None else checked_name("run_id", self.run_id)
        self._algorithm = as_algorithm(self.algorithm)
        self._interrupts = Interrupts()
        self._series = TrainingSeries()
        terminal = sys.stdout if sys.stdout is not None and sys.stdout.isatty() else None  # none where it was closed
        self._progress = Progress(partial(print, flush=True) if self.progress else None, terminal=terminal)

    def fit(self, agent: Any, train_dataset: Dataset, val_dataset: Dataset | None = None) -> None:
        """Train until the algorithm is done.

        Args:
            agent: a LitAgent (see :func:`lightstream.producers.rollout`); ``None`` with ``n_runners=0``.
            train_dataset: the tasks, each a JSON value: a list, or what :func:`.data_sets.as_tasks` makes one of. All
                are looked at before anything starts.
            val_dataset: tasks to measure on, for algorithms that do.

        Raises:
            TrainingError: another process trains this run; the run was begun with another model, algorithm or data
                set; the agent cannot be handed to a Runner process; the data set is empty: nothing has changed. Or a
                step could not be made; what is committed stays, and ``fit`` goes on from there.
            ServiceUnavailableError: Kafka, the worker, the proxy or the policy server does not answer.
        """
        settings = self.settings or Settings.load()
        # `kill`, Docker and Kubernetes end a program by SIGTERM, of which Python alone would say nothing.
        self._interrupts = Interrupts(*((signal.SIGTERM,) if _is_default(signal.SIGTERM) else ()))
        with TrainingLog(settings, self._trainer_id, self._run_id) as log, self._interrupts:
            try:
                self._fit(settings, agent, train_dataset, val_dataset)
            except KeyboardInterrupt as interrupt:
                log.ends(interrupt, f"Stopped. The same command goes on with run {self._run_id!r}.")
                raise
            except LightstreamError as error:
                log.ends(error, f"Error: {error}")
                raise error from None

    def _fit(self, settings: Settings, agent: Any, train_dataset: Dataset, val_dataset: Dataset | None) -> None:
        train_dataset = as_tasks(train_dataset)
        tasks = identity_of_dataset(train_dataset) if self._algorithm.needs_tasks else "none"
        if val_dataset is not None and len(val_dataset := as_tasks(val_dataset)):
            identity_of_dataset(val_dataset)
        algorithm = self._algorithm.of_tasks(len(train_dataset))
        algorithm.check(settings)
        trackers = Trackers(settings, trainer_id=self._trainer_id, run_id=self._run_id, trackers=self.trackers)
        runners = RunnerProcesses(
            settings,
            agent,
            n=self.n_runners,
            n_concurrent=self.runner_concurrency,
            name=self._trainer_id,
            run_id=self._run_id,
            hooks=tuple(self.hooks),
            tracer=self.tracer,
        )
        made_with = algorithm.made_with() | {"data_set": tasks, "seed": str(self.seed)}
        # Before the ledger opens, which fences whoever trains under this id.
        lock = RunLock(
            settings,
            trainer_id=self._trainer_id,
            run_id=self._run_id,
            policies=algorithm.trained_policies(),
            take_over=self.take_over,
        )
        room = DiskRoom(settings, settings.checkpoint_root)
        health = served_health(
            settings, name="trainer", setting="trainer_port", ready=[room], metrics=[self._series.readings]
        )
        with health, lock, _own_spans(settings) as spans:
            observers: tuple[StepObserver, ...] = (*self.observers, self._series, *spans)
            self._train(settings, algorithm, runners, trackers, train_dataset, val_dataset, made_with, observers)

    def _train(
        self,
        settings: Settings,
        algorithm: Algorithm,
        runners: RunnerProcesses,
        trackers: Trackers,
        train_dataset: Dataset,
        val_dataset: Dataset | None,
        made_with: dict[str, str],
        observers: Sequence[StepObserver],
    ) -> None:
        ledger = KafkaLedger(settings, trainer_id=self._trainer_id, run_id=self._run_id)
        history = ledger.open()
        check_same_run(self._run_id, history.made_with, made_with)
        say = self._progress.say
        if history.last_step:
            say(f"Run {self._run_id!r} goes on after step {history.last_step}.")
        else:
            say(f"Run {self._run_id!r} begins; its log is {log_path(settings, self._trainer_id)}.")
        page = _page_of(settings, self._run_id)
        if page:
            say(f"Watch it: {page}")
        log = TrajectorySource(settings, ledger.group_id, run_id=self._run_id)
        try:
            log.start(history.low_water)
            with runners, trackers, self._enqueuing(settings) as enqueue:
                source = LoggedGroups(
                    log,
                    self._run_id,
                    settled=history.settled,
                    limit_s=longest_rollout_s(self.rollout_config, settings.rollout_timeout_s),
                    enqueue=enqueue,
                    check=partial(_check_both, self._interrupts, runners),
                    progress=self._progress,
                    rollouts=RunsRollouts(settings, self._run_id),
                    awaited=algorithm.awaited_rewards,
                )
                run = Run(
                    settings=settings,
                    run_id=self._run_id,
                    trainer_id=self._trainer_id,
                    history=history,
                    seed=self.seed,
                    made_with=made_with,
                    progress=self._progress,
                    clock=self.clock or SystemClock(),
                )
                rollouts = Rollouts(
                    run=run,
                    source=source,
                    train_dataset=train_dataset,
                    val_dataset=val_dataset,
                    rollout_config=self.rollout_config,
                    assembly=self.assembly,
                )
                steps = Steps(
                    run=run,
                    ledger=ledger,
                    rollouts=rollouts,
                    observers=(*observers, lambda _report: self._interrupts.check()),
                    initial_resources=dict(self.initial_resources or {}),
                )
                servers = FollowingServers(settings, self._progress)
                algorithm.run(AlgorithmContext(rollouts=rollouts, steps=steps, servers=servers))
            if self._progress.curve:
                say(self._progress.curve)
                say(f"Every step: lightstream sql \"FROM training_steps WHERE run_id = '{self._run_id}'\"")
            if page:
                say(f"All of it: {page}")
        finally:
            log.close()
            ledger.close()

    @contextmanager
    def _enqueuing(self, settings: Settings) -> Generator[Enqueue]:
        """A call of the store that blocks; a store of this trainer's own is open within the block."""
        loop = LoopThread("lightstream-trainer-store", "the trainer's store")
        store = self.store
        if store is None:
            from lightstream.store_views.stores import KafkaLightningStore

            store = KafkaLightningStore(settings)
        try:
            if self.store is None:
                loop.run(store.start)
            yield lambda requests: loop.run(partial(store.enqueue_many_rollouts, requests))
        finally:
            loop.close(store.close if self.store is None else _nothing)


def _page_of(settings: Settings, run_id: str) -> str:
    """Address of the run's page; empty where no view is known here."""
    view = find(settings, "view")
    address = settings.view_url or (view.address if view is not None else "")
    return f"{address.rstrip('/')}/run?{urlencode({'run': run_id})}" if address else ""


def _is_default(number: signal.Signals) -> bool:
    return signal.getsignal(number) is signal.SIG_DFL


def _check_both(interrupts: Interrupts, runners: RunnerProcesses) -> None:
    interrupts.check()
    runners.check()


async def _nothing() -> None:
    return None


@contextmanager
def _own_spans(settings: Settings) -> Generator[Sequence[StepObserver]]:
    """Observers that export a span of each step, where the settings name a collector."""
    spans = OwnSpans.of(settings, "trainer")
    if spans is None:
        yield ()
        return

    def record(report: StepReport) -> None:
        seconds = {name: value for name, value in report.metrics.items() if name.startswith("seconds/")}
        attributes = {"step": report.step, "outcome": report.outcome.value, "rollouts": report.rollouts, **seconds}
        spans.record("training step", time.time_ns() - int(report.seconds * NANOS_PER_SECOND), attributes)

    try:
        yield (record,)
    finally:
        spans.close()
