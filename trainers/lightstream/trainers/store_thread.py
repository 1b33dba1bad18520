"""An asynchronous store for synchronous callers: one event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from lightstream.schemas.interfaces import LightningStore

__all__ = ["StoreThread"]

T = TypeVar("T")


class StoreThread:
    """Runs a store's coroutines. ``store`` is used from this loop alone.

    Args:
        store: the store.
        opening: awaited first, in the loop (``store.start()``), ``None`` for a store that is open already.
        closes_store: whether :meth:`close` closes it too.
    """

    def __init__(
        self, store: LightningStore, *, opening: Coroutine[Any, Any, None] | None = None, closes_store: bool = False
    ) -> None:
        self.store = store
        self._closes_store = closes_store
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="lightstream-trainer-store", daemon=True)
        self._thread.start()
        if opening is not None:
            try:
                self.call(opening)
            except BaseException:
                self._stop()
                raise

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run to the end and return the result, or raise what it raises."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Stop the loop; closes the store if it is ours."""
        try:
            if self._closes_store:
                self.call(self.store.close())
        finally:
            self._stop()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
