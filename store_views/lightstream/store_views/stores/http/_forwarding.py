"""A store that hands every call to another."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import LightningStoreCapabilities

__all__ = ["ForwardingStore"]

OWN = frozenset({"start", "close"})
"""What says how the forwarder itself lives."""


class ForwardingStore(LightningStore):
    """Every method of the interface but ``start`` and ``close``, done by :attr:`store`."""

    def __init__(self, store: LightningStore) -> None:
        self._store = store

    @property
    def store(self) -> LightningStore:
        """What does it."""
        return self._store

    @property
    def capabilities(self) -> LightningStoreCapabilities:
        return self.store.capabilities


def _forwarder(name: str) -> Callable[..., Any]:
    def forward(self: ForwardingStore, *arguments: Any, **named: Any) -> Any:
        return getattr(self.store, name)(*arguments, **named)

    forward.__name__ = name
    forward.__doc__ = getattr(LightningStore, name).__doc__
    return forward


for _name, _ in inspect.getmembers(LightningStore, inspect.isfunction):
    if not _name.startswith("_") and _name not in OWN:
        setattr(ForwardingStore, _name, _forwarder(_name))
