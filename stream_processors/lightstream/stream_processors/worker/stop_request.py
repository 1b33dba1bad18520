"""SIGTERM and SIGINT as a wish to stop, from the first moment on: a stop during the start is a stop too."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

__all__ = ["StopRequest"]


class StopRequest:
    """Whether somebody wants the process to stop. Make it in the main thread."""

    def __init__(self) -> None:
        self._requested = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._event = asyncio.Event()

    @contextmanager
    def listening(self) -> Generator[None]:
        """Take both signals until the end of the block; then whoever had them before has them again."""
        numbers = (signal.SIGTERM, signal.SIGINT)
        before = [signal.signal(number, self._on_signal) for number in numbers]
        try:
            yield
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)

    async def wait(self) -> None:
        """Return once a signal has come, now or earlier."""
        self._loop = asyncio.get_running_loop()
        if not self._requested:
            await self._event.wait()

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._requested = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._event.set)
