"""Algorithms that work on a store, as Agent Lightning's do. For those that train, see ``lightstream.trainers``."""

from __future__ import annotations

import asyncio
import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal

from lightstream.schemas.errors import SettingsError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import NamedResources, Rollout
from lightstream.trainers.tasks import Dataset

__all__ = ["Algorithm", "Baseline", "FastAlgorithm", "FunctionalAlgorithm", "algo"]

logger = logging.getLogger(__name__)

GIVEN = ("store", "train_dataset", "val_dataset", "llm_proxy", "adapter", "initial_resources")
"""What a function may ask for by name."""

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

    @abstractmethod
    def run(self, train_dataset: Dataset | None = None, val_dataset: Dataset | None = None) -> Any:
        """Do the work; a coroutine function or a plain one."""

    def is_async(self) -> bool:
        """Whether :meth:`run` is a coroutine function."""
        return inspect.iscoroutinefunction(self.run)

    def set_store(self, store: LightningStore) -> None:
        """Say which store to work on."""
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
        """Say what turns spans into data."""
        self._adapter = adapter

    def get_adapter(self) -> Any:
        """What turns spans into data.

        Raises:
            SettingsError: none was set.
        """
        if self._adapter is None:
            raise SettingsError("no adapter was set for this algorithm.", next_step="Trainer(adapter=…)")
        return self._adapter

    def set_llm_proxy(self, llm_proxy: Any) -> None:
        """Say which proxy to use."""
        self._llm_proxy = llm_proxy

    def get_llm_proxy(self) -> Any:
        """The proxy, or ``None``."""
        return self._llm_proxy

    def set_trainer(self, trainer: Any) -> None:
        """Say which Trainer runs this."""
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
        """Say with which resources to begin."""
        self._initial_resources = resources

    def get_initial_resources(self) -> NamedResources | None:
        """The resources to begin with, if any."""
        return self._initial_resources


class FunctionalAlgorithm(Algorithm):
    """What :func:`algo` makes of a function. Calling it calls the function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._wanted = frozenset(inspect.signature(function).parameters)

    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self._function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def run(self, train_dataset: Dataset | None = None, val_dataset: Dataset | None = None) -> Any:
        """Call the function with what it asks for.

        Raises:
            TypeError: a data set was given that the function does not take.
        """
        datasets = {"train_dataset": train_dataset, "val_dataset": val_dataset}
        for name, dataset in datasets.items():
            if dataset is not None and name not in self._wanted:
                raise TypeError(f"{name} was given, and {self._function!r} does not take it")
        made: dict[str, Callable[[], Any]] = {
            "store": self.get_store,
            "adapter": self.get_adapter,
            "llm_proxy": self.get_llm_proxy,
            "initial_resources": self.get_initial_resources,
        }
        given = {name: make() for name, make in made.items() if name in self._wanted}
        return self._function(**given, **{name: value for name, value in datasets.items() if name in self._wanted})


def algo(function: Callable[..., Any]) -> Any:
    """Make an algorithm of a function, synchronous or not.

    One that takes any of ``store``, ``train_dataset``, ``val_dataset``, ``llm_proxy``, ``adapter`` and
    ``initial_resources`` works on a store; one that takes a context alone trains (``lightstream.trainers.algo``).

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
    raise TypeError(f"nothing provides {unknown}; an algorithm takes any of {', '.join(GIVEN)}, or a context alone")


class FastAlgorithm(Algorithm):
    """One that ends soon, so that ``Trainer.dev`` may run it."""


class Baseline(FastAlgorithm):
    """Rolls every task out, once per epoch, and logs what came of it. Nothing is trained.

    Args:
        n_epochs: how often.
        span_verbosity: what is logged of each span: the keys of its attributes, their values too, or no span at all.
    """

    def __init__(self, n_epochs: int = 1, *, span_verbosity: Verbosity = "keys") -> None:
        self.n_epochs = n_epochs
        self.span_verbosity = span_verbosity

    async def run(self, train_dataset: Dataset | None = None, val_dataset: Dataset | None = None) -> None:
        store, resources = self.get_store(), self.get_initial_resources()
        named = None if resources is None else (await store.update_resources("default", resources)).resources_id
        sets: list[tuple[Literal["train", "val"], Dataset | None]] = [("train", train_dataset), ("val", val_dataset)]
        for epoch in range(self.n_epochs):
            enqueued = [
                await store.enqueue_rollout(tasks[index], mode, named)
                for mode, tasks in sets
                if tasks is not None
                for index in range(len(tasks))
            ]
            logger.info("epoch %s of %s: %s rollouts", epoch + 1, self.n_epochs, len(enqueued))
            ends = [self._told(rollout.rollout_id) for rollout in enqueued]
            await asyncio.gather(*ends)

    async def _told(self, rollout_id: str) -> None:
        """Wait for a rollout and log it."""
        store = self.get_store()
        ended: list[Rollout] = await store.wait_for_rollouts(rollout_ids=[rollout_id])
        spans = list(await store.query_spans(rollout_id, "latest"))
        logger.info("rollout %s: %s, %s spans", rollout_id, ended[0].status if ended else "gone", len(spans))
        if self.span_verbosity != "none":
            for span in spans:
                told = span.attributes if self.span_verbosity == "key_values" else sorted(span.attributes)
                logger.info("rollout %s: span %s, %s: %s", rollout_id, span.sequence_id, span.name, told)
        if self._adapter is not None and spans:
            logger.info("rollout %s, adapted: %s", rollout_id, self._adapter.adapt(spans))
