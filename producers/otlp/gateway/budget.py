"""A bound on the memory of all requests under way."""

from __future__ import annotations

import asyncio
from types import TracebackType

from lightstream.schemas.errors import BackpressureError


class ByteBudget:
    """Bytes that the requests under way may hold in all. For one event loop.

    Args:
        limit_bytes: a request alone may exceed it, so that each can go on some time.
        wait_s: how long a request may wait for others to end.
    """

    def __init__(self, limit_bytes: int, wait_s: float) -> None:
        self._limit_bytes = limit_bytes
        self._wait_s = wait_s
        self._changed = asyncio.Condition()
        self.held_bytes = 0

    def hold(self) -> Hold:
        """The share of one request: for ``async with``."""
        return Hold(self)

    async def take(self, already_bytes: int, more_bytes: int) -> None:
        """Wait for room, then take it; see :meth:`Hold.add`."""
        if self._has_room(already_bytes, more_bytes):
            self.held_bytes += more_bytes
            return
        async with self._changed:
            try:
                await asyncio.wait_for(
                    self._changed.wait_for(lambda: self._has_room(already_bytes, more_bytes)), self._wait_s
                )
            except TimeoutError as error:
                raise BackpressureError(
                    f"requests in progress hold {self.held_bytes:,} bytes; {self._limit_bytes:,} is the limit."
                ) from error
            self.held_bytes += more_bytes

    async def give_back(self, size_bytes: int) -> None:
        """End of a request."""
        self.held_bytes -= size_bytes
        async with self._changed:
            self._changed.notify_all()

    def _has_room(self, already_bytes: int, more_bytes: int) -> bool:
        others_bytes = self.held_bytes - already_bytes
        return others_bytes == 0 or self.held_bytes + more_bytes <= self._limit_bytes


class Hold:
    """The share of one request."""

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self.size_bytes = 0

    async def add(self, more_bytes: int) -> None:
        """Hold this number of bytes more, once there is room.

        Raises:
            BackpressureError: there was none in time; what was held before is held still.
        """
        if more_bytes:
            await self._budget.take(self.size_bytes, more_bytes)
            self.size_bytes += more_bytes

    async def __aenter__(self) -> Hold:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.size_bytes:
            await self._budget.give_back(self.size_bytes)
