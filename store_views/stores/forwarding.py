"""Stores that hand every call to another one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import LightningStoreCapabilities

OWN = frozenset({"start", "close"})
"""Methods that say how the forwarding store itself lives."""


class _Forwards(Protocol):
    @property
    def store(self) -> LightningStore: ...

    async def call(self, call: Callable[[], Coroutine[Any, Any, Any]]) -> Any: ...


def forward_calls(cls: type[LightningStore], *, without: frozenset[str] = frozenset()) -> None:
    """Give ``cls`` every method of the interface except ``start``, ``close`` and the names in ``without``.

    Each is done by the ``store`` of the instance, coroutines through its ``call``.
    """
    for name, method in inspect.getmembers(LightningStore, inspect.isfunction):
        if not name.startswith("_") and name not in OWN | without:
            setattr(cls, name, _forwarder(name, method))


def _forwarder(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    async def forward(self: _Forwards, *arguments: Any, **named: Any) -> Any:
        return await self.call(lambda: getattr(self.store, name)(*arguments, **named))

    @functools.wraps(method)
    def forward_at_once(self: _Forwards, *arguments: Any, **named: Any) -> Any:
        return getattr(self.store, name)(*arguments, **named)

    return forward if inspect.iscoroutinefunction(method) else forward_at_once


class ForwardingStore(LightningStore):
    """Every method of the interface but ``start`` and ``close``, done by :attr:`store`."""

    def __init__(self, store: LightningStore) -> None:
        self._store = store

    @property
    def store(self) -> LightningStore:
        """The store that does it."""
        return self._store

    @property
    def capabilities(self) -> LightningStoreCapabilities:
        return self.store.capabilities

    async def call(self, call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Make a call of :attr:`store`."""
        return await call()


forward_calls(ForwardingStore)
