"""Callers that wait in their event loops, without a thread each, for what other threads bring about."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial

from .._loop_calls import call_in

__all__ = ["Waiters"]


class Waiters:
    """Thread-safe, for any number of event loops. Of a caller that leaves, nothing is kept.

    Args:
        lock: guards what the conditions look at; they are called under it.
    """

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}

    async def until(self, holds: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until ``holds()``, for ``timeout_s`` seconds at most; whether it did."""
        with self._lock:
            if holds():
                return True
            if timeout_s <= 0:
                return False
            woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting[woken] = holds
        try:
            await asyncio.wait((woken,), timeout=timeout_s)
        finally:
            with self._lock:
                left_unwoken = self._waiting.pop(woken, None) is not None
        return not left_unwoken

    def look(self) -> None:
        """Wake those whose condition holds now. Call it after each change, without the lock."""
        if not self._waiting:  # who comes just now looks for itself
            return
        with self._lock:
            woken = [future for future, holds in self._waiting.items() if holds()]
            for future in woken:
                del self._waiting[future]
        for future in woken:
            call_in(future.get_loop(), partial(_wake, future))


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
