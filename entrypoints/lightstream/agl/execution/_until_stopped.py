"""A coroutine that is ended when an event says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from .events import ExecutionEvent

__all__ = ["until_stopped"]


async def until_stopped(
    work: Coroutine[Any, Any, None],
    event: ExecutionEvent,
    *,
    look_interval_s: float,
    graceful_s: float,
    look: Callable[[], None] | None = None,
) -> None:
    """Run ``work``; once ``event`` is set it has ``graceful_s`` to end by itself, and as long again when cancelled.

    Args:
        look: called every ``look_interval_s``; may set the event.

    Raises:
        Exception: what ``work`` raised.
    """
    task = asyncio.ensure_future(work)
    try:
        while not task.done() and not event.is_set():
            await asyncio.wait({task}, timeout=look_interval_s)
            if look is not None:
                look()
        if not task.done():
            await asyncio.wait({task}, timeout=graceful_s)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=graceful_s)
    if task.done() and not task.cancelled():
        task.result()
