"""Wait for records to be durable, with one wake-up of the event loop for all of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import Future

from lightstream.schemas.kafka import Position

__all__ = ["all_durable"]


async def all_durable(futures: Sequence[Future[Position]]) -> None:
    """Return when every record is durable.

    Raises:
        PublishError: one of them did not become durable; the others may or may not be.
    """
    if not futures:
        return
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    lock = threading.Lock()
    left = len(futures)

    def count(_: Future[Position]) -> None:
        nonlocal left
        with lock:
            left -= 1
            last = left == 0
        if last:
            loop.call_soon_threadsafe(done.set)

    for future in futures:
        future.add_done_callback(count)
    await done.wait()
    for future in futures:
        future.result()
