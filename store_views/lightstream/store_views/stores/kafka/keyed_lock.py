"""What may be done by one caller at a time, for each name."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from concurrent.futures import Future
from contextlib import asynccontextmanager

from .._loop_calls import future_in

__all__ = ["KeyedLock"]


class KeyedLock:
    """Lets callers in one after another, in the order in which they came, from any threads and event loops."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[str, Future[None]] = {}

    @asynccontextmanager
    async def alone(self, name: str) -> AsyncGenerator[None]:
        """Within the block nobody else is in one of this name."""
        mine: Future[None] = Future()
        with self._lock:
            before = self._last.get(name)
            self._last[name] = mine
        if before is not None:
            try:
                await future_in(asyncio.get_running_loop(), before)
            except asyncio.CancelledError:
                before.add_done_callback(lambda _: self._leave(name, mine))  # whoever comes next waits for it as well
                raise
        try:
            yield
        finally:
            self._leave(name, mine)

    def _leave(self, name: str, mine: Future[None]) -> None:
        with self._lock:
            if self._last[name] is mine:
                del self._last[name]
        mine.set_result(None)
