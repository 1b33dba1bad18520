"""The gate in front of a model server: calls pass, or wait while weights are exchanged."""

from __future__ import annotations

import asyncio
import threading


class Gate:
    """Calls enter in an event loop; another thread closes it, and waits until the calls inside have left."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._closed = 0
        self._inside = 0
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    @property
    def inside(self) -> int:
        """Calls that have entered and not left."""
        return self._inside

    @property
    def is_closed(self) -> bool:
        """Whether new calls have to wait."""
        return self._closed > 0

    async def enter(self) -> None:
        """Go in, once the gate is open."""
        while True:
            event = asyncio.Event()
            entry = (asyncio.get_running_loop(), event)
            with self._change:
                if not self._closed:
                    self._inside += 1
                    return
                self._waiting.add(entry)
            try:
                await event.wait()
            finally:
                with self._change:
                    self._waiting.discard(entry)

    def leave(self) -> None:
        """Be done."""
        with self._change:
            self._inside -= 1
            self._change.notify_all()

    def close(self) -> None:
        """Let nobody in; who is inside stays. To be opened as often as it was closed."""
        with self._change:
            self._closed += 1

    def drained(self, timeout_s: float) -> bool:
        """Wait until nobody is inside; false if that takes longer."""
        with self._change:
            return self._change.wait_for(lambda: self._inside == 0, timeout_s)

    def open(self) -> None:
        """Let waiting calls in."""
        with self._change:
            self._closed -= 1
            if not self._closed:
                for loop, event in self._waiting:
                    if not loop.is_closed():
                        loop.call_soon_threadsafe(event.set)
