"""Algorithms that work on a store beside its Runners. For those that train, see ``lightstream.trainers``."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal

from lightstream.schemas.errors import SettingsError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import NamedResources, PromptTemplate, Rollout
from lightstream.stream_processors.adapters import TracerTraceToTriplet, TraceToMessages
from lightstream.trainers.algorithms.apo import ApoOptions, PromptSearch
from lightstream.trainers.algorithms.apo import PromptVersion as VersionedPromptTemplate
from lightstream.trainers.algorithms.apo import RolloutResult as RolloutResultForAPO
from lightstream.trainers.algorithms.gepa import GepaOptions, PromptEvolution
from lightstream.trainers.run.tasks import Dataset

from ._names import add_parts
from ._verl_config import verl_config

__all__ = [
    "APO",
    "GEPA",
    "VERL",
    "Algorithm",
    "Baseline",
    "FastAlgorithm",
    "FunctionalAlgorithm",
    "RolloutResultForAPO",
    "VersionedPromptTemplate",
    "algo",
    "batch_iter_over_dataset",
    "with_llm_proxy",
    "with_store",
]

logger = logging.getLogger(__name__)

GIVEN = ("store", "train_dataset", "val_dataset", "llm_proxy", "adapter", "initial_resources")
"""The arguments that a function may ask for by name."""

Verbosity = Literal["keys", "key_values", "none"]


class Algorithm(ABC):
    """Works on a store from outside: enqueues rollouts, waits for them, reads their spans. Override :meth:`run`.

    The Trainer sets what the ``get_…`` methods return before it calls :meth:`run`.
    """

    _store: LightningStore | None = None
    _adapter: Any = None
    _llm_proxy: Any = None
    _trainer: Any = None
    _initial_resources: NamedResources | None = None

    default_adapter: Callable[[], Any] = TracerTraceToTriplet
    """Makes the adapter where the Trainer was given none."""

    @abstractmethod
    def run(self, train_dataset: Dataset | None = None, val_dataset: Dataset | None = None) -> Any:
        """Do the work; a coroutine function or a plain one."""

    def is_async(self) -> bool:
        """Return whether :meth:`run` is a coroutine function."""
        return inspect.iscoroutinefunction(self.run)

    def set_store(self, store: LightningStore) -> None:
        """Set the store to work on."""
        self._store = store

    def get_store(self) -> LightningStore:
        """The store to work on.

        Raises:
            SettingsError: none was set.
        """
        if self._store is None:
            raise SettingsError("no store was set for this algorithm.", next_step="A Trainer sets it, or set_store.")
        return self._store

    def set_adapter(self, adapter: Any) -> None:
        """Set the adapter that turns spans into data."""
        self._adapter = adapter

    def get_adapter(self) -> Any:
        """The adapter that turns spans into data.

        Raises:
            SettingsError: none was set.
        """
        if self._adapter is None:
            raise SettingsError("no adapter was set for this algorithm.", next_step="Trainer(adapter=…)")
        return self._adapter

    def set_llm_proxy(self, llm_proxy: Any) -> None:
        """Set the proxy to use."""
        self._llm_proxy = llm_proxy

    def get_llm_proxy(self) -> Any:
        """The proxy, or ``None``."""
        return self._llm_proxy

    def set_trainer(self, trainer: Any) -> None:
        """Set the Trainer that runs this."""
        self._trainer = trainer

    def get_trainer(self) -> Any:
        """The Trainer that runs this.

        Raises:
            SettingsError: none does.
        """
        if self._trainer is None:
            raise SettingsError("no Trainer runs this algorithm.", next_step="Trainer(algorithm=…)")
        return self._trainer

    def set_initial_resources(self, resources: NamedResources | None) -> None:
        """Set the resources to begin with."""
        self._initial_resources = resources

    def get_initial_resources(self) -> NamedResources | None:
        """The resources to begin with, if any."""
        return self._initial_resources


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")


class FunctionalAlgorithm(Algorithm, Generic[T]):
    """An algorithm that :func:`algo` made from a function. Calling it calls the function.

    ``T`` says, as in Agent Lightning, whether it is asynchronous (``Literal[True]``); nothing depends on it.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._parameters = frozenset(inspect.signature(function).parameters)

    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self._function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def run(self, train_dataset: Dataset | None = None, val_dataset: Dataset | None = None) -> Any:
        """Call the function with the arguments that it names.

        Raises:
            TypeError: a data set was given that the function does not take.
        """
        datasets = {"train_dataset": train_dataset, "val_dataset": val_dataset}
        for name, dataset in datasets.items():
            if dataset is not None and name not in self._parameters:
                raise TypeError(f"{name} was given, but {self._function!r} does not take it")
        makers: dict[str, Callable[[], Any]] = {
            "store": self.get_store,
            "adapter": self.get_adapter,
            "llm_proxy": self.get_llm_proxy,
            "initial_resources": self.get_initial_resources,
        }
        arguments = {name: make() for name, make in makers.items() if name in self._parameters}
        return self._function(
            **arguments, **{name: value for name, value in datasets.items() if name in self._parameters}
        )


def algo(function: Callable[..., Any]) -> Any:
    """Make an algorithm from a function, synchronous or not.

    One that takes any of ``store``, ``train_dataset``, ``val_dataset``, ``llm_proxy``, ``adapter`` and
    ``initial_resources`` works on a store; one that takes only a context trains (``lightstream.trainers.algo``).

    Raises:
        TypeError: it is neither.
    """
    parameters = inspect.signature(function).parameters
    if set(parameters) <= set(GIVEN):
        return FunctionalAlgorithm(function)
    if len(parameters) == 1:
        from lightstream.trainers import algo as training_algorithm

        return training_algorithm(function)
    unknown = ", ".join(name for name in parameters if name not in GIVEN)
    raise TypeError(f"nothing provides {unknown}; an algorithm takes any of {', '.join(GIVEN)}, or only a context")


def with_store(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a coroutine method of an algorithm its store as the first argument."""

    @functools.wraps(function)
    async def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        return await function(self, self.get_store(), *args, **kwargs)

    return wrapped


def with_llm_proxy(required: bool = False, auto_start: bool = True) -> Callable[[Callable[..., Any]], Any]:
    """Give a coroutine method of an algorithm its LLM proxy, or ``None``, as the first argument.

    Args:
        required: without a proxy calling the method raises :class:`SettingsError`.
        auto_start: a proxy that is not running is started for the call.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        async def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
            proxy = self.get_llm_proxy()
            if proxy is None and required:
                raise SettingsError("this algorithm needs an LLM proxy.", next_step="Trainer(llm_proxy=LLMProxy(…))")
            if proxy is None or not auto_start or proxy.is_running():
                return await function(self, proxy, *args, **kwargs)
            await proxy.start()
            try:
                return await function(self, proxy, *args, **kwargs)
            finally:
                await proxy.stop()

        return wrapped

    return decorate


class FastAlgorithm(Algorithm):
    """One that ends soon, so that ``Trainer.dev`` may run it."""


class Baseline(FastAlgorithm):
    """Rolls out every task, once per epoch, and logs the results. Nothing is trained.

    Args:
        n_epochs: how often.
        train_split: a share, more than 0 and less than 1. The two data sets are split already, so nothing uses it.
        polling_interval: how often the queue is checked while it is full, in seconds; the end of a rollout is seen
            at once.
        max_queue_length: with more rollouts than this in the queue, no other is enqueued.
        span_verbosity: what is logged of each span: the keys of its attributes, their values too, or no span at all.

    Raises:
        ValueError: ``train_split`` is not such a share, ``polling_interval`` not above 0, ``max_queue_length`` below 0.
    """

    def __init__(
        self,
        n_epochs: int = 1,
        *,
        train_split: float = 0.5,
        polling_interval: float = 5.0,
        max_queue_length: int = 4,
        span_verbosity: Verbosity = "keys",
    ) -> None:
        if not 0.0 < train_split < 1.0:
            raise ValueError(f"train_split must be between 0 and 1, not {train_split:g}.")
        if not polling_interval > 0.0:
            raise ValueError(f"polling_interval must be more than 0 seconds, not {polling_interval:g}.")
        if max_queue_length < 0:
            raise ValueError(f"max_queue_length must be at least 0, not {max_queue_length}.")
        self.n_epochs = n_epochs
        self.train_split = train_split
        self.polling_interval = polling_interval
        self.max_queue_length = max_queue_length
        self.span_verbosity = span_verbosity

    async def run(self, train_dataset: Dataset | None = None, val_dataset: Dataset | None = None) -> None:
        store, resources = self.get_store(), self.get_initial_resources()
        named = None if resources is None else (await store.update_resources("default", resources)).resources_id
        datasets: list[tuple[Literal["train", "val"], Dataset | None]] = [
            ("train", train_dataset),
            ("val", val_dataset),
        ]
        sets: list[tuple[Literal["train", "val"], Dataset]] = [(m, tasks) for m, tasks in datasets if tasks is not None]
        for epoch in range(self.n_epochs):
            ends: list[asyncio.Task[None]] = []
            for mode, tasks in sets:
                for index in range(len(tasks)):
                    await self._room(ends)
                    rollout = await store.enqueue_rollout(tasks[index], mode, named)
                    ends.append(asyncio.create_task(self._log_when_over(rollout.rollout_id)))
            logger.info("epoch %s of %s: %s rollouts", epoch + 1, self.n_epochs, len(ends))
            await asyncio.gather(*ends)

    async def _room(self, ends: list[asyncio.Task[None]]) -> None:
        """Wait until the queue is short enough. It is checked again when one of ``ends`` comes."""
        store = self.get_store()
        while True:
            waiting = await store.query_rollouts(status_in=["queuing", "requeuing"], limit=self.max_queue_length + 1)
            if len(waiting) <= self.max_queue_length:
                return
            under_way = [end for end in ends if not end.done()]
            if under_way:
                await asyncio.wait(under_way, timeout=self.polling_interval, return_when=asyncio.FIRST_COMPLETED)
            else:  # others' rollouts fill it
                await asyncio.sleep(self.polling_interval)

    async def _log_when_over(self, rollout_id: str) -> None:
        """Wait for a rollout and log it."""
        store = self.get_store()
        ended: list[Rollout] = await store.wait_for_rollouts(rollout_ids=[rollout_id])
        spans = list(await store.query_spans(rollout_id, "latest"))
        logger.info("rollout %s: %s, %s spans", rollout_id, ended[0].status if ended else "gone", len(spans))
        if self.span_verbosity != "none":
            for span in spans:
                attributes = span.attributes if self.span_verbosity == "key_values" else sorted(span.attributes)
                logger.info("rollout %s: span %s, %s: %s", rollout_id, span.sequence_id, span.name, attributes)
        if self._adapter is not None and spans:
            logger.info("rollout %s, adapted: %s", rollout_id, self._adapter.adapt(spans))


class _PromptAlgorithm(Algorithm, Generic[T]):
    """Searches for a better first prompt template of ``initial_resources``."""

    default_adapter = TraceToMessages
    _best: PromptTemplate | None = None

    def get_adapter(self) -> TraceToMessages:
        """The adapter that turns spans into conversations.

        Raises:
            ValueError: it is of another kind.
        """
        adapter = super().get_adapter()
        if not isinstance(adapter, TraceToMessages):
            raise ValueError(
                f"{type(self).__name__} needs a TraceToMessages as adapter, not {type(adapter).__name__}."
            )  # as in Agent Lightning
        return adapter

    def get_seed_prompt_template(self) -> tuple[str, PromptTemplate]:
        """The prompt to begin with, and its name.

        Raises:
            ValueError: the initial resources have none.
        """
        for name, resource in (self.get_initial_resources() or {}).items():
            if isinstance(resource, PromptTemplate):
                return name, resource
        raise ValueError(
            f"{type(self).__name__} needs a PromptTemplate to begin with: Trainer(initial_resources={{…}})."
        )

    def get_best_prompt(self) -> PromptTemplate:
        """The prompt with the highest score on all validation tasks.

        Raises:
            ValueError: nothing was run yet.
        """
        if self._best is None:
            raise ValueError(f"{type(self).__name__} has no best prompt yet: Trainer.fit comes first.")
        return self._best

    async def _search(
        self, search_class: Any, client: Any, options: Any, train: Dataset | None, val: Dataset | None, **named: Any
    ) -> None:
        if train is None or val is None:
            raise ValueError(
                f"{type(self).__name__} needs a train_dataset, for critiques, and a val_dataset, to compare prompts on."
            )
        resource_name, seed_prompt = self.get_seed_prompt_template()
        search = search_class(
            self.get_store(),
            client,
            options,
            resource_name=resource_name,
            seed_prompt=seed_prompt,
            train_dataset=train,
            val_dataset=val,
            adapter=self.get_adapter(),
            **named,
        )
        try:
            await search.run()
        finally:
            self._best = search.best.prompt_template


class APO(_PromptAlgorithm[T]):
    """Optimises the first prompt template of ``initial_resources``: see
    :class:`lightstream.trainers.algorithms.apo.PromptSearch`.

    ``T`` is the type of a task.

    Args:
        async_openai_client: an ``openai.AsyncOpenAI`` of any endpoint.
        name: of the search. The same search on the same store goes on where it was; another name begins another one.
        progress: print a line for each step of the search; else they go to the log.
        _poml_trace: Agent Lightning's, which writes each prompt to a file; all are in the store here, whatever it says.
        options: those of :class:`lightstream.trainers.algorithms.apo.ApoOptions`, of which all but ``seed`` are Agent
            Lightning's.

    Raises:
        SettingsError: an option is out of range.
    """

    def __init__(
        self,
        async_openai_client: Any,
        *,
        name: str | None = None,
        progress: bool = True,
        _poml_trace: bool = False,
        **options: Any,
    ) -> None:
        self.async_openai_client = async_openai_client
        self.options = ApoOptions(**options)
        self._name = name
        self._say: Callable[[str], None] = functools.partial(print, flush=True) if progress else logger.info

    @with_llm_proxy()
    async def run(
        self, llm_proxy: Any, train_dataset: Dataset | None = None, val_dataset: Dataset | None = None
    ) -> None:
        """Search.

        Raises:
            ValueError: a data set is missing, or there is no prompt to begin with.
            TrainingError: every rollout with the first prompt failed.
        """
        client, named = self.async_openai_client, {"name": self._name, "say": self._say}
        await self._search(PromptSearch, client, self.options, train_dataset, val_dataset, **named)


class GEPA(_PromptAlgorithm[T]):
    """Evolves the first prompt template of ``initial_resources`` by the library gepa: see
    :class:`lightstream.trainers.algorithms.gepa.PromptEvolution`. Agent Lightning has nothing like it.

    ``T`` is the type of a task.

    Args:
        async_openai_client: an ``openai.AsyncOpenAI`` of any endpoint.
        name: of the search. The same search on the same store goes on where it was; another name begins another one.
        progress: print a line for each step of the search; else they go to the log.
        options: of :class:`lightstream.trainers.algorithms.gepa.GepaOptions`.

    Raises:
        SettingsError: an option is out of range.
    """

    def __init__(
        self, async_openai_client: Any, *, name: str | None = None, progress: bool = True, **options: Any
    ) -> None:
        self.async_openai_client = async_openai_client
        self.options = GepaOptions(**options)
        self._name = name
        self._say: Callable[[str], None] = functools.partial(print, flush=True) if progress else logger.info

    @with_llm_proxy()
    async def run(
        self, llm_proxy: Any, train_dataset: Dataset | None = None, val_dataset: Dataset | None = None
    ) -> None:
        """Search.

        Raises:
            ValueError: a data set is missing, or there is no prompt to begin with.
            SettingsError: the library is not installed, or the budget is less than one measurement.
            TrainingError: every rollout with the first prompt failed.
        """
        client, named = self.async_openai_client, {"name": self._name, "say": self._say}
        await self._search(PromptEvolution, client, self.options, train_dataset, val_dataset, **named)


def batch_iter_over_dataset(dataset: Dataset, batch_size: int) -> Iterator[Sequence[Any]]:
    """Batches of shuffled tasks without end. No task is in a batch twice; a batch is the whole set if that is smaller.

    The rest at the end of a pass begins the next batch.
    """
    size = min(batch_size, len(dataset))
    batch: list[int] = []
    while size:
        for index in random.sample(range(len(dataset)), len(dataset)):  # the order of tasks; no secret
            if index in batch:
                continue
            batch.append(index)
            if len(batch) == size:
                yield [dataset[chosen] for chosen in batch]
                batch = []


def VERL(  # noqa: N802  # the interface's name, a function there as well
    config: Mapping[str, Any] | None = None, trainer_cls: Any = None, daemon_cls: Any = None, **options: Any
) -> Any:
    """verl's GRPO, in the Trainer's process.

    Args:
        config: verl's configuration, nested (``{"data": {"train_batch_size": 32, …}, …}``), as
            ``lightstream.trainers.VERL`` takes it, and Agent Lightning's own keys beside it
            (docs/agent-lightning.md).
        trainer_cls, daemon_cls: not here.
        options: instead of a configuration, those of ``lightstream.trainers.VERL``.

    Raises:
        SettingsError: the configuration asks for what is not done here; all such keys are named.
    """
    if trainer_cls is not None or daemon_cls is not None:
        raise SettingsError(
            "VERL takes no trainer_cls and no daemon_cls here.",
            next_step="An algorithm of your own is a function of an AlgorithmContext: lightstream.trainers.algo.",
        )
    from lightstream.trainers import VERL as Verl  # noqa: N811  # the class behind this function

    if config is None:
        return Verl(**options)
    if options:
        raise SettingsError(f"VERL takes a configuration or options, not both: {', '.join(sorted(options))}.")
    return Verl(config=verl_config(config))


add_parts(__name__)
