"""Callers that wait until something holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Condition:
    """As ``asyncio.Condition``, without a lock: for state that one event loop alone changes."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}

    async def wait_for(self, holds: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until ``holds()``, for ``timeout_s`` seconds at most; whether it did."""
        if holds():
            return True
        if timeout_s <= 0:
            return False
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[woken] = holds
        try:
            await asyncio.wait((woken,), timeout=timeout_s)
        finally:
            timed_out = self._waiting.pop(woken, None) is not None
        return not timed_out

    def notify(self) -> None:
        """Wake the waiters whose condition holds now. Call it after each change."""
        woken = [future for future, holds in self._waiting.items() if holds()]
        for future in woken:
            del self._waiting[future]
            if not future.done():
                future.set_result(None)
