"""A client that waits for an answer, and may hang up before it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from starlette.requests import Request

from ._errors import Answer

__all__ = ["WaitingClient"]


class WaitingClient:
    """Whoever sent a request, whose body has been read. To be closed once it is answered."""

    def __init__(self, request: Request) -> None:
        self._gone = asyncio.ensure_future(_hung_up(request))

    @property
    def is_gone(self) -> bool:
        """Whether it has hung up."""
        return self._gone.done()

    async def unless_gone(self, work: Coroutine[Any, Any, Answer]) -> Answer | None:
        """What ``work`` gives; it is cancelled when the client hangs up first, or was by others: then ``None``."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task, self._gone}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
            return None if task.cancelled() else task.result()
        finally:
            task.cancel()

    def close(self) -> None:
        """Look no longer whether it is there."""
        self._gone.cancel()


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
