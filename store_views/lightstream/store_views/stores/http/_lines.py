"""Connections that are kept open, one pool for each: httpx looks through all of a pool's at every request."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx

__all__ = ["Lines"]

CONNECTIONS_MAX = 1024
"""As many calls of one client as may be under way; more wait for their turn."""

IDLE_CONNECTIONS_MAX = 64


class Lines:
    """Belongs to one event loop. A request takes the line used last, so that those not needed fall idle and end."""

    def __init__(self, timeout: httpx.Timeout) -> None:
        self._timeout = timeout
        self._tls = ssl.create_default_context()
        self._turns = asyncio.Semaphore(CONNECTIONS_MAX)
        self._free: list[httpx.AsyncClient] = []

    @asynccontextmanager
    async def line(self) -> AsyncGenerator[httpx.AsyncClient]:
        """A client that nobody else uses meanwhile."""
        async with self._turns:
            client = self._free.pop() if self._free else self._new()
            try:
                yield client
            except BaseException:
                await client.aclose()  # whatever is still on its way goes nowhere
                raise
            if len(self._free) < IDLE_CONNECTIONS_MAX:
                self._free.append(client)
            else:
                await client.aclose()

    async def close(self) -> None:
        """Close those that are free; nobody may have one."""
        while self._free:
            await self._free.pop().aclose()

    def _new(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(timeout=self._timeout, limits=httpx.Limits(max_connections=1), verify=self._tls)
