"""Something that is over, told to whoever waits for it, in whichever loop and thread."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future

__all__ = ["Latch"]


class Latch:
    """As ``asyncio.Event``, for several event loops and threads at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_set = False
        self._waiting: list[Future[None]] = []

    def is_set(self) -> bool:
        """Whether it is over."""
        return self._is_set

    def set(self) -> None:
        """It is over: wake all that wait."""
        with self._lock:
            self._is_set = True
            waiting, self._waiting = self._waiting, []
        for future in waiting:
            if future.set_running_or_notify_cancel():
                future.set_result(None)

    def clear(self) -> None:
        """It has begun again."""
        with self._lock:
            self._is_set = False

    async def wait(self) -> None:
        """Wait until it is over."""
        future: Future[None] = Future()
        with self._lock:
            if self._is_set:
                return
            self._waiting = [each for each in self._waiting if not each.done()] + [future]
        await asyncio.wrap_future(future)
