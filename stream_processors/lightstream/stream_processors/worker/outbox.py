"""Records on their way out, and the wait until all of them are durable."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial

from lightstream.schemas.errors import BackpressureError
from lightstream.schemas.kafka import BY_KEY, Headers, Position, Publisher
from lightstream.schemas.records import Record
from lightstream.schemas.topics import Topic

__all__ = ["Outbox"]


class Outbox:
    """What one batch writes. Not thread-safe; use a new one per batch."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._sent: list[Future[Position]] = []

    async def send(
        self,
        topic: Topic,
        key: str,
        record: Record | None,
        *,
        headers: Headers | None = None,
        partition: int = BY_KEY,
        in_thread: bool = False,
    ) -> Future[Position]:
        """Hand a record over (:meth:`Publisher.publish`). Waits only when the send buffer is full, until all before it
        are durable; or, ``in_thread``, until a thread has encoded it: for records that take long.

        Raises:
            RecordTooLargeError: nothing was sent.
            PublishError: an earlier record did not become durable, or the buffer is too small for this one alone.
        """
        publish = partial(self._publisher.publish, topic, key, record, headers=headers, partition=partition)
        try:
            future = await asyncio.to_thread(publish) if in_thread else publish()
        except BackpressureError:
            await self.durable()
            future = await asyncio.to_thread(publish) if in_thread else publish()
        self._sent.append(future)
        return future

    async def durable(self) -> None:
        """Wait until everything handed over is durable.

        Raises:
            PublishError: a record did not become durable; the others may or may not be.
        """
        sent, self._sent = self._sent, []
        await _all_done(sent)
        for future in sent:
            future.result()


async def _all_done(futures: Sequence[Future[Position]]) -> None:
    """Wait for all, waking the event loop once instead of once per record."""
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
        if last and not loop.is_closed():
            loop.call_soon_threadsafe(done.set)

    for future in futures:
        future.add_done_callback(count)
    await done.wait()
