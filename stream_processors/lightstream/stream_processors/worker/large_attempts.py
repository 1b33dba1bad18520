"""Large attempts that have closed: finished and written out alongside the stream of records, which goes on."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from ..core.assembly import DeferredAssembly
from .inbox import LogRecord

__all__ = ["LargeAttempts"]

WAITING_MAX = 8
"""Attempts whose spans are held until their turn comes; with more, their partition waits."""

Finish = Callable[[DeferredAssembly, LogRecord], Awaitable[None]]


class LargeAttempts:
    """Finishes one attempt after the other, in the order in which they closed. Not thread-safe.

    What is not done when the process ends is read again, since :attr:`oldest` holds back what is committed.

    Args:
        finish: makes the trajectory of an attempt durable; is given its closing record too.
    """

    def __init__(self, finish: Finish) -> None:
        self._finish = finish
        self._waiting: deque[tuple[DeferredAssembly, LogRecord]] = deque()
        self._one_done = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def oldest(self) -> int | None:
        """Where the first of those that are not done opened; nothing from there on may be committed."""
        return min((attempt.first_offset for attempt, _ in self._waiting), default=None)

    async def add(self, attempt: DeferredAssembly, record: LogRecord) -> None:
        """Take an attempt; waits where :data:`WAITING_MAX` are not done.

        Args:
            record: its closing record.
        """
        await self._fewer_than(WAITING_MAX)
        self._waiting.append((attempt, record))
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="large-attempts")

    async def all_done(self) -> None:
        """Wait until the trajectories of all are durable."""
        await self._fewer_than(1)

    def check(self) -> None:
        """Raise what ended the work, if anything did.

        Raises:
            PublishError: a trajectory did not become durable.
        """
        if self._task is not None and self._task.done():
            self._task.result()

    def close(self) -> None:
        """Stop; what is not done stays in the log."""
        if self._task is not None:
            self._task.cancel()

    async def _fewer_than(self, count: int) -> None:
        while len(self._waiting) >= count:
            self._one_done.clear()
            await self._one_done.wait()

    async def _run(self) -> None:
        while self._waiting:
            await self._finish(*self._waiting[0])
            self._waiting.popleft()
            self._one_done.set()
        self._task = None
