"""A store that notes what its calls raised."""

from __future__ import annotations

import inspect
import threading
from collections import Counter
from typing import Any

from lightstream.schemas.interfaces import LightningStore


class Witness(LightningStore):
    """Hands every call to ``store``; a call that raises is noted, and raises all the same.

    Attributes:
        errors: ``method: error``, in their order.
        done: method -> how many calls went well.
    """

    def __init__(self, store: LightningStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self.errors: list[str] = []
        self.done: Counter[str] = Counter()

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_") or name in ("errors", "done"):
            return super().__getattribute__(name)
        method = getattr(self._store, name)
        if not inspect.iscoroutinefunction(method):
            return method

        async def noted(*arguments: Any, **named: Any) -> Any:
            try:
                result = await method(*arguments, **named)
            except Exception as error:
                with self._lock:
                    self.errors.append(f"{name}: {error!r}")
                raise
            with self._lock:
                self.done[name] += 1
            return result

        return noted
