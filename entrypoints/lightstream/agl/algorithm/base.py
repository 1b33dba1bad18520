"""The base of algorithms that work on a store. For those that train, see ``lightstream.trainers``."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import Any

from lightstream.schemas.errors import SettingsError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import NamedResources
from lightstream.trainers.tasks import Dataset

__all__ = ["Algorithm"]


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
