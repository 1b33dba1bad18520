"""``Trainer`` with Agent Lightning 0.3's arguments: algorithms on a store run here, training ones are handed on."""

from __future__ import annotations

import functools
import inspect
import logging
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from lightstream.producers import Hook, LitAgent, LLMProxy, OtelTracer
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import ServiceUnavailableError, SettingsError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import Assembly, NamedResources
from lightstream.stream_processors.adapters import LlmProxyTraceToTriplet, TraceAdapter, TracerTraceToTriplet
from lightstream.stream_processors.adapters.tree import LLM_CALL_MATCH

from .._arguments import refuse
from ..algorithm import Algorithm, Baseline, FastAlgorithm, algo
from ..execution import (
    ClientServerExecutionStrategy,
    ExecutionStrategy,
)
from ..runner import Runner
from ..runner.legacy import client_of, run_legacy
from ..store import InMemoryLightningStore
from ._on_store import SharedTracer, run_on_store
from .init_utils import build_component, instantiate_from_spec

logger = logging.getLogger(__name__)

__all__ = ["ComponentSpec", "ExecutionStrategyRegistry", "Trainer"]

ExecutionStrategyRegistry = {
    "cs": "lightstream.agl.execution.ClientServerExecutionStrategy",
    "shm": "lightstream.agl.execution.SharedMemoryExecutionStrategy",
}


PartT = TypeVar("PartT")

ComponentSpec: TypeAlias = PartT | type[PartT] | Callable[[], PartT] | str | dict[str, Any] | None
"""A part of a Trainer, or what describes it: see :func:`build_component`."""

_ADAPTER: type[TraceAdapter[Any]] = TraceAdapter

_PROCESSES = "Runners are processes of their own, which read their settings from the environment."

_RULES = (
    "Trainer(assembly=lightstream.schemas.types.Assembly(credit=…, reward_match=…, trained_agents=…)) says which call "
    "gets a reward, and which agents are trained."
)

NO_USE_FOR_TRAINING = {
    "max_rollouts": "Steps end a training: VERL(steps=…), or verl's trainer.total_epochs.",
    "llm_proxy": "`lightstream up` runs the proxy.",
    "strategy": _PROCESSES,
    "runner": _PROCESSES,
}
"""Argument -> what to do instead, for algorithms that train."""


class Trainer:
    """Brings an agent, tasks and an algorithm together.

    An algorithm on a store (:class:`Algorithm`, or a function made one by :func:`algo`) runs with its Runners as the
    strategy says. ``VERL`` and other algorithms of ``lightstream.trainers`` are run by the Trainer there. Each part may
    be the object, its class, a factory, a path, or a dictionary (:func:`build_component`).

    Args:
        algorithm: ``None`` for :meth:`dev`, or for Runners alone.
        n_runners: Runners; a strategy's own number comes first. Of algorithms that train, Runner processes.
        max_rollouts: after this many each Runner stops.
        initial_resources: handed to the algorithm; where weights are trained, in each version beside the model.
        tracer: routes the agent's spans; by default one of its own. Where weights are trained, each Runner process has
            a copy, or makes one where a class or a function was given.
        adapter: turns spans into data, for algorithms that ask; by default ``TracerTraceToTriplet()``. Where weights
            are trained, the assembler does that, by the adapter's ``agent_match`` and ``reward_match``.
        store: where rollouts are; by default the one on Kafka; for :meth:`dev`, and where no Kafka is named or running,
            one in memory.
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
        self.tracer: OtelTracer | None = _tracer(tracer) if on_a_store or isinstance(tracer, OtelTracer) else None
        self._training: Any = None if on_a_store else _training_trainer(self, tracer, others)
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
        run_on_store(self, self.algorithm, agent, train_dataset, val_dataset, self.store or self._default_store())

    def _default_store(self) -> LightningStore:
        """The one on Kafka; where no Kafka is named or running, one in memory, which stays in ``store``."""
        from lightstream.runtime.kafka import bootstrap_servers
        from lightstream.store_views.stores import KafkaLightningStore

        settings = Settings.load()
        try:
            bootstrap_servers(settings)
        except ServiceUnavailableError as error:
            logger.warning(
                "Rollouts stay in this process's memory, and end with it: %s `lightstream up` keeps them.",
                error.message,
            )
            self.store, self._store_is_given = InMemoryLightningStore(), True
            return self.store
        return KafkaLightningStore(settings)

    def starts(self, store: LightningStore) -> bool:
        """Return whether ``store`` is this Trainer's to start, and was not given."""
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
        built = build_component(
            strategy,
            expected_type=ExecutionStrategy,
            spec_name="strategy",
            allow_none=True,
            optional_defaults=defaults,
            registry=ExecutionStrategyRegistry,
        )
        if self.port is not None and isinstance(built, ClientServerExecutionStrategy):
            built.server_port = self.port
        self.n_runners = getattr(built, "n_runners", self.n_runners)
        return built


def _algorithm(described: Any) -> Any:
    """An algorithm on a store, or one that trains.

    A function that takes nothing makes one; one that takes something is one.

    Raises:
        TypeError: it is neither.
    """
    if described is None or (hasattr(described, "run") and not isinstance(described, type)):
        return described
    if isinstance(described, str | Mapping):
        algorithm = instantiate_from_spec(described, spec_name="algorithm")
    elif isinstance(described, type) or not inspect.signature(described).parameters:
        algorithm = described()
    else:
        return algo(described)
    if not hasattr(algorithm, "run"):
        raise TypeError(f"algorithm is {type(algorithm).__name__}, which has no method run")
    return algorithm


def _renamed(old_name: str, old: Any, name: str, value: Any) -> Any:
    if old is None:
        return value
    warnings.warn(f"{old_name} is now {name}", DeprecationWarning, stacklevel=3)
    return old if value is None else value


def _tracer(described: ComponentSpec[OtelTracer]) -> OtelTracer | None:
    return build_component(described, expected_type=OtelTracer, spec_name="tracer", allow_none=True)


def _tracers(described: ComponentSpec[OtelTracer]) -> Callable[[], OtelTracer | None] | None:
    """The maker of the tracer of each Runner process; ``None``: their own. An object is pickled with it."""
    return None if described is None else functools.partial(_tracer, described)


def _training_trainer(trainer: Trainer, tracer: ComponentSpec[OtelTracer], others: Mapping[str, Any]) -> Any:
    """The Trainer of ``lightstream.trainers`` for the algorithm of this one.

    Raises:
        SettingsError: an argument was given that it does not use, or not so.
    """
    from lightstream import trainers

    given = {name: getattr(trainer, name) or None for name in NO_USE_FOR_TRAINING}
    refuse(type(trainer.algorithm).__name__, given, NO_USE_FOR_TRAINING)
    if trainer.adapter is not None and type(trainer.adapter) is not LlmProxyTraceToTriplet:  # the assembler reads those
        if others.get("assembly") is not None:
            raise SettingsError("adapter and assembly were given.", next_step="Say it all in assembly.")
        others = {**others, "assembly": _assembly_of(trainer.adapter)}
    if trainer.initial_resources:
        others = {**others, "initial_resources": trainer.initial_resources}
    if trainer.hooks:
        others = {**others, "hooks": trainer.hooks}
    if (make_tracer := _tracers(tracer)) is not None:
        others = {**others, "tracer": make_tracer}
    return trainers.Trainer(algorithm=trainer.algorithm, n_runners=trainer.n_runners, store=trainer.store, **others)


def _assembly_of(adapter: TraceAdapter[Any]) -> Assembly:
    """Translate the adapter's options to rules of the assembler, which makes the trajectories here.

    Hierarchies are not repaired, and calls without token ids are never trained on, whatever the adapter says.

    Raises:
        SettingsError: it says what the assembler does not do.
        ValueError: its ``reward_match`` is none, or ``agent_match`` no regular expression.
    """
    if type(adapter) is not TracerTraceToTriplet:
        raise SettingsError(
            f"trajectories come from the assembler, not from {type(adapter).__name__}.", next_step=_RULES
        )
    if adapter.llm_call_match != LLM_CALL_MATCH or not adapter.exclude_llm_call_in_reward:
        raise SettingsError(
            "the assembler takes no llm_call_match (it knows calls by their content), and never trains on calls that "
            "compute a reward.",
            next_step="Leave llm_call_match and exclude_llm_call_in_reward as they are.",
        )
    rules = {"reward_match": str(adapter.reward_match), "trained_agents": adapter.agent_match}
    assembly = Assembly.model_validate(rules)
    if adapter.agent_match is not None and re.search(adapter.agent_match, ""):
        raise SettingsError(
            f"agent_match {adapter.agent_match!r} matches calls without an agent too, which the assembler would keep.",
            next_step="Leave agent_match out to train on all calls, or require a character: '.+' in place of '.*'.",
        )
    return assembly
