"""``Trainer`` with Agent Lightning's arguments: algorithms on a store run here, those that train are handed on."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from lightstream.producers import Hook, LitAgent, LLMProxy, OtelTracer
from lightstream.schemas.errors import SettingsError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.settings import Settings
from lightstream.schemas.types import NamedResources
from lightstream.stream_processors.adapters import TraceAdapter, TracerTraceToTriplet

from ..algorithm.base import Algorithm
from ..algorithm.decorator import algo
from ..algorithm.fast import Baseline, FastAlgorithm
from ..execution import (
    ClientServerExecutionStrategy,
    ExecutionStrategy,
)
from ..runner import Runner
from ..store import InMemoryLightningStore
from ._legacy import client_of, run_legacy
from ._on_store import run_on_store
from ._shared_tracer import SharedTracer
from ._training import training_trainer
from .init_utils import build_component, instantiate_from_spec
from .registry import ExecutionStrategyRegistry

__all__ = ["ComponentSpec", "Trainer"]

PartT = TypeVar("PartT")

ComponentSpec: TypeAlias = PartT | type[PartT] | Callable[[], PartT] | str | dict[str, Any] | None
"""A part of a Trainer, or what describes it: see :func:`build_component`."""

_ADAPTER: type[TraceAdapter[Any]] = TraceAdapter


class Trainer:
    """Brings an agent, tasks and an algorithm together.

    An algorithm on a store (:class:`Algorithm`, or a function made one by :func:`algo`) runs with its Runners as the
    strategy says. ``VERL`` and other algorithms of ``lightstream.trainers`` are run by the Trainer there. Each part may
    be the object, its class, a factory, a path, or a dictionary (:func:`build_component`).

    Args:
        algorithm: ``None`` for :meth:`dev`, or for Runners alone.
        n_runners: Runners; a strategy's own number comes first. Of algorithms that train, Runner processes.
        max_rollouts: after this many each Runner stops.
        initial_resources: handed to the algorithm.
        tracer: routes the agent's spans; by default one of its own.
        adapter: turns spans into data, for algorithms that ask; by default ``TracerTraceToTriplet()``.
        store: where rollouts are; by default the one on Kafka, for :meth:`dev` one in memory.
        runner: what runs the agent; by default ``LitAgentRunner``. Each worker has its own copy.
        strategy: where all this runs: ``shm``, ``cs``, or a strategy; by default in threads of this process.
        port: of the strategy ``cs``, which it chooses if there is no other.
        llm_proxy: handed to the algorithm.
        hooks: one or several, called around each attempt.
        dev, n_workers, max_tasks, triplet_exporter, daemon: of Agent Lightning 0.1: ``n_runners``, ``max_rollouts`` and
            ``adapter`` by other names; ``dev`` and ``daemon=False`` are not here.
        others: arguments of ``lightstream.trainers.Trainer``, for algorithms that train.

    Raises:
        SettingsError: an argument is not used here.
        TypeError, ValueError: a part is of another kind, or its description is unusable.
    """

    def __init__(
        self,
        *,
        dev: bool = False,
        n_runners: int | None = None,
        max_rollouts: int | None = None,
        initial_resources: NamedResources | None = None,
        tracer: ComponentSpec[OtelTracer] = None,
        adapter: ComponentSpec[TraceAdapter[Any]] = None,
        store: ComponentSpec[LightningStore] = None,
        runner: ComponentSpec[Runner[Any]] = None,
        strategy: ComponentSpec[ExecutionStrategy] = None,
        port: int | None = None,
        algorithm: Any = None,
        llm_proxy: ComponentSpec[LLMProxy] = None,
        n_workers: int | None = None,
        max_tasks: int | None = None,
        daemon: bool = True,
        triplet_exporter: ComponentSpec[TraceAdapter[Any]] = None,
        hooks: Hook | Sequence[Hook] | None = None,
        **others: Any,
    ) -> None:
        if dev or not daemon:
            raise SettingsError(
                f"Trainer takes no {'dev=True' if dev else 'daemon=False'} here.",
                next_step="Trainer.dev(agent, tasks) tries an agent out." if dev else "Runners end with their Trainer.",
            )
        n_runners = _renamed("n_workers", n_workers, "n_runners", n_runners)
        self.max_rollouts: int | None = _renamed("max_tasks", max_tasks, "max_rollouts", max_rollouts)
        adapter = _renamed("triplet_exporter", triplet_exporter, "adapter", adapter)
        self.n_runners: int = 1 if n_runners is None else n_runners
        self.initial_resources = initial_resources
        self.port = port
        self.hooks: Sequence[Hook] = (hooks,) if isinstance(hooks, Hook) else tuple(hooks or ())
        self.tracer = build_component(tracer, expected_type=OtelTracer, spec_name="tracer", allow_none=True)
        self._store_is_given = isinstance(store, LightningStore)
        self.store = build_component(store, expected_type=LightningStore, spec_name="store", allow_none=True)
        self.adapter = build_component(
            adapter,
            expected_type=_ADAPTER,
            spec_name="adapter",
            allow_none=True,
            dict_requires_type=False,
            dict_default_cls=TracerTraceToTriplet,
        )
        self.llm_proxy = build_component(
            llm_proxy,
            expected_type=LLMProxy,
            spec_name="llm_proxy",
            allow_none=True,
            optional_defaults={"store": self.store},
        )
        self.strategy = self._strategy(strategy)
        self.runner: Any = runner
        self.algorithm: Any = _algorithm(algorithm)
        on_a_store = self.algorithm is None or isinstance(self.algorithm, Algorithm)
        self._training: Any = None if on_a_store else training_trainer(self, others)
        if on_a_store and others:
            raise SettingsError(
                f"Trainer takes no {', '.join(sorted(others))} here.",
                next_step="Arguments of lightstream.trainers.Trainer are for algorithms that train.",
            )

    def fit(self, agent: Any, train_dataset: Any = None, val_dataset: Any = None) -> None:
        """Run the algorithm to its end.

        Without an algorithm only Runners work, until something stops them: Ctrl-C, or ``max_rollouts``.

        Args:
            agent: a :class:`LitAgent`; ``None`` where an algorithm trains and Runners run elsewhere (``n_runners=0``).
            train_dataset: the tasks; or the URL of a server of the first protocol (:meth:`fit_v0`).
            val_dataset: tasks for algorithms that measure.

        Raises:
            Exception: what the algorithm raised.
        """
        if isinstance(train_dataset, str):
            self.fit_v0(agent, train_dataset)
            return
        if agent is not None:
            agent.set_trainer(self)
        if self._training is not None:
            self._training.fit(agent, train_dataset, val_dataset)
            return
        from lightstream.store_views.stores import KafkaLightningStore

        store = self.store or KafkaLightningStore(Settings.load())
        run_on_store(self, self.algorithm, agent, train_dataset, val_dataset, store)

    def starts(self, store: LightningStore) -> bool:
        """Whether ``store`` is this Trainer's to start, and was not given."""
        return store is not self.store or not self._store_is_given

    def dev(self, agent: LitAgent[Any], train_dataset: Any = None, val_dataset: Any = None) -> None:
        """Roll out the tasks without services, to see whether the agent runs: by :class:`Baseline`, in memory.

        The results are in ``store`` afterwards.

        Raises:
            TypeError: the Trainer's algorithm is not a :class:`FastAlgorithm`.
        """
        algorithm = Baseline() if self.algorithm is None else self.algorithm
        if not isinstance(algorithm, FastAlgorithm):
            raise TypeError(f"Trainer.dev takes a FastAlgorithm, or no algorithm; got {type(algorithm).__name__}")
        if self.store is None:
            self.store, self._store_is_given = InMemoryLightningStore(), True
        agent.set_trainer(self)
        run_on_store(self, algorithm, agent, train_dataset, val_dataset, self.store)

    def fit_v0(self, agent: LitAgent[Any], train_data: Any, *, val_data: Any = None, dev_data: Any = None) -> None:
        """Run the agent for a server of Agent Lightning's first protocol, without an algorithm here.

        Args:
            train_data: URL of the server, or an ``AgentLightningClient`` (``DevTaskLoader``).
            val_data, dev_data: not here: the server says what is run.
        """
        client = client_of(train_data)
        if client is None or self.algorithm is not None or val_data is not None or dev_data is not None:
            raise SettingsError(
                "fit_v0 takes the URL of a server, or a client, and no algorithm.",
                next_step="To run an algorithm here: Trainer(algorithm=…).fit(agent, train_dataset, val_dataset).",
            )
        adapter = self.adapter or TracerTraceToTriplet()
        if not isinstance(adapter, TracerTraceToTriplet):
            raise SettingsError(f"fit_v0 needs a TracerTraceToTriplet as adapter, not {type(adapter).__name__}.")
        agent.set_trainer(self)
        try:
            with SharedTracer(self.tracer).used() as tracer:
                run_legacy(agent, client, tracer, adapter, n_runners=self.n_runners, tasks_max=self.max_rollouts)
        finally:
            if client is not train_data:
                client.close()

    def _strategy(self, strategy: Any) -> ExecutionStrategy | None:
        if strategy is None and self.port is not None:
            strategy = "cs"
        defaults: dict[str, Any] = {"n_runners": self.n_runners}
        if self.port is not None:
            defaults["server_port"] = self.port
        made = build_component(
            strategy,
            expected_type=ExecutionStrategy,
            spec_name="strategy",
            allow_none=True,
            optional_defaults=defaults,
            registry=ExecutionStrategyRegistry,
        )
        if self.port is not None and isinstance(made, ClientServerExecutionStrategy):
            made.server_port = self.port
        self.n_runners = getattr(made, "n_runners", self.n_runners)
        return made


def _algorithm(described: Any) -> Any:
    """An algorithm on a store, or one that trains.

    A function that takes nothing makes one; one that takes something is one.

    Raises:
        TypeError: it is neither.
    """
    if described is None or (hasattr(described, "run") and not isinstance(described, type)):
        return described
    if isinstance(described, str | Mapping):
        made = instantiate_from_spec(described, spec_name="algorithm")
    elif isinstance(described, type) or not inspect.signature(described).parameters:
        made = described()
    else:
        return algo(described)
    if not hasattr(made, "run"):
        raise TypeError(f"algorithm is {type(made).__name__}, which has no method run")
    return made


def _renamed(old_name: str, old: Any, name: str, value: Any) -> Any:
    if old is None:
        return value
    warnings.warn(f"{old_name} is now {name}", DeprecationWarning, stacklevel=3)
    return old if value is None else value
