"""One partition of one topic under one processor: recover, then take batches until stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Protocol

from lightstream.schemas.errors import LightstreamError
from lightstream.schemas.topics import Topic

from .inbox import Inbox, LogRecord

__all__ = ["PartitionHandler", "PartitionTask"]


BATCHES_IN_FLIGHT_MAX = 16
"""Batches on their way to Kafka at once. Each takes a round trip or two, and those after it are through only then:
with 4, at 1,000 spans a second, a record that came while a trajectory was on its way waited for that one's round trip.
Where the processor is what is short, batches are full, and there are never so many."""


class PartitionHandler(Protocol):
    """A processor's state for one partition, and what it does with records."""

    topic: Topic
    partition: int

    def recover(self) -> int:
        """Rebuild the state; blocking, called in a thread, before any record. Returns the first offset to expect."""
        ...

    def missing_between(self, first: int, end: int) -> bool:
        """Whether the log has records at ``first`` or above and below ``end``; blocking, called in a thread."""
        ...

    async def handle(self, batch: Sequence[LogRecord]) -> Coroutine[None, None, int]:
        """Process records in offset order.

        Returns:
            What is left to do until all they led to is durable, while the next batch is processed already; its result
            is the offset below which everything may be committed once all batches before are through.
        """
        ...

    async def tick(self) -> None:
        """Do what the passing of time asks for."""
        ...

    def held_back(self) -> int | None:
        """The offset from which on nothing may be committed yet, whatever batches are through; ``None`` for none."""
        ...

    def close(self) -> None:
        """Let go of what :meth:`recover` opened."""
        ...


class PartitionTask:
    """Feeds a handler. An error of the handler is reported once through ``on_failure`` and ends the process."""

    def __init__(self, handler: PartitionHandler, inbox: Inbox, on_failure: Callable[[BaseException], None]) -> None:
        self.handler = handler
        self.inbox = inbox
        self.recovered = asyncio.Event()
        self.position: int | None = None
        """Next offset to process; ``None`` until the state is recovered."""
        self._through: int | None = None
        self._on_failure = on_failure
        self._finishing: set[asyncio.Task[None]] = set()
        self._task = asyncio.create_task(self._run(), name=f"{handler.topic.name}-{handler.partition}")
        self._task.add_done_callback(self._done)

    @property
    def committable(self) -> int | None:
        """Everything below this offset may be committed; ``None`` while there is nothing to commit."""
        held_back = self.handler.held_back()
        if self._through is None or held_back is None:
            return self._through
        return min(self._through, held_back)

    async def stop(self, grace_s: float) -> None:
        """Take no more; give the batches in progress ``grace_s`` seconds to become durable. The rest is read again."""
        self.inbox.close()
        await asyncio.wait([self._task], timeout=grace_s)
        pending = [task for task in (self._task, *self._finishing) if not task.done()]
        for task in pending:
            task.cancel()
        if pending:
            await asyncio.wait(pending)
        self.handler.close()

    async def _run(self) -> None:
        expected = await asyncio.to_thread(self.handler.recover)
        self.position = expected
        self.recovered.set()
        room = asyncio.Semaphore(BATCHES_IN_FLIGHT_MAX)
        last: asyncio.Task[None] | None = None
        while batch := await self.inbox.take():
            fresh = [record for record in batch if record.offset >= expected]
            for record in fresh:
                if record.offset != expected:
                    await self._check_gap(expected, record.offset)
                expected = record.offset + 1
            if fresh:
                await room.acquire()
                rest = asyncio.create_task(await self.handler.handle(fresh))
                last = asyncio.create_task(self._finish(last, rest, expected, room))
                self._finishing.add(last)
                last.add_done_callback(self._done)
                last.add_done_callback(self._finishing.discard)
        if last is not None:
            await last

    async def _finish(
        self, before: asyncio.Task[None] | None, rest: asyncio.Task[int], position: int, room: asyncio.Semaphore
    ) -> None:
        try:
            if before is not None:
                await before
            self._through = await rest
            self.position = position
        finally:
            rest.cancel()
            room.release()

    async def _check_gap(self, expected: int, found: int) -> None:
        """Offsets may be missing where transactions ended or records expired; nowhere else."""
        if await asyncio.to_thread(self.handler.missing_between, expected, found):
            topic, partition = self.handler.topic.name, self.handler.partition
            raise LightstreamError(
                f"partition {partition} of {topic!r} delivered offset {found} where {expected} was due.",
                next_step="The worker stops without committing; restarted, it reads from the committed offset again.",
            )

    def _done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.inbox.close()
            self._on_failure(error)
