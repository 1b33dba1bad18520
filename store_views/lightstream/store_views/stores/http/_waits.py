"""Calls of the store that wait for something, and are ended before it comes: the server stops, or its client left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any

from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import AttemptedRollout

from ._giving_back import give_back, places_of

__all__ = ["StoppingError", "taken_unless_stopping", "unless_stopping"]


class StoppingError(ServiceUnavailableError):
    """The server stops; whoever asks again finds the next one."""


async def unless_stopping(stopping: asyncio.Event, reading: Awaitable[Any]) -> Any:
    """The result of something that changes nothing. Cancelling this cancels that.

    Raises:
        StoppingError: the server stops first.
    """
    task, stop = asyncio.ensure_future(reading), asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise StoppingError("the store server is being stopped.", next_step="Ask again in a moment.")
        return task.result()
    finally:
        stop.cancel()
        task.cancel()


async def taken_unless_stopping(
    stopping: asyncio.Event, store: LightningStore, dequeueing: Awaitable[Sequence[AttemptedRollout]], *, waits: bool
) -> Sequence[AttemptedRollout]:
    """What a dequeue takes: nothing, when the server stops before there is something.

    Where this is cancelled, what it takes all the same is given back.

    Args:
        waits: it waits for work, and may be interrupted in that; else it runs to its end.
    """
    task, stop = asyncio.ensure_future(dequeueing), asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait({task, stop} if waits else {task}, return_when=asyncio.FIRST_COMPLETED)
        return await _ended(task, interrupt=waits)
    except asyncio.CancelledError:
        await give_back(store, places_of(await _ended(task, interrupt=waits)))
        raise
    finally:
        stop.cancel()


async def _ended(task: asyncio.Future[Sequence[AttemptedRollout]], *, interrupt: bool) -> Sequence[AttemptedRollout]:
    if interrupt:
        task.cancel()
    await asyncio.wait({task})
    return () if task.cancelled() else task.result()
