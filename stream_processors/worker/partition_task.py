"""One partition of one topic under one processor: recover, then take batches until stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from lightstream.runtime.disk import DiskRoom
from lightstream.schemas.errors import LightstreamError
from lightstream.schemas.topics import Topic

from .inbox import Inbox, LogRecord
from .unread import UnreadRecords


class PartitionHandler(Protocol):
    """A processor's state for one partition, and its handling of records."""

    topic: Topic
    partition: int
    unread: UnreadRecords

    def recover(self) -> int:
        """Rebuild the state; blocking, called in a thread, before any record. Returns the first offset to expect."""
        ...

    def missing_between(self, first: int, end: int) -> bool:
        """Whether the log has records at ``first`` or above and below ``end``; blocking, called in a thread."""
        ...

    async def handle(self, batch: Sequence[LogRecord]) -> int:
        """Process records in offset order, until all they lead to is durable.

        Returns:
            The offset below which everything may be committed.
        """
        ...

    async def tick(self) -> None:
        """Do the work that the passing of time demands."""
        ...

    def held_back(self) -> int | None:
        """The offset from which on nothing may be committed, whatever :meth:`handle` returned; ``None`` for none."""
        ...

    def close(self) -> None:
        """Release everything that :meth:`recover` opened."""
        ...


class PartitionTask:
    """Feeds a handler. An error of the handler is reported once through ``on_failure`` and ends the process.

    Args:
        room: on the worker's disk, which is waited for before each batch.
    """

    def __init__(
        self, handler: PartitionHandler, inbox: Inbox, on_failure: Callable[[BaseException], None], room: DiskRoom
    ) -> None:
        self._room = room
        self.handler = handler
        self.inbox = inbox
        self.recovered = asyncio.Event()
        self.position: int | None = None
        """Next offset to process; ``None`` until the state is recovered."""
        self._through: int | None = None
        self._on_failure = on_failure
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
        """Take no more; give the batch in progress ``grace_s`` seconds to become durable. The rest is read again."""
        self.inbox.close()
        await asyncio.wait([self._task], timeout=grace_s)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
        self.handler.close()

    async def _run(self) -> None:
        expected = await asyncio.to_thread(self.handler.recover)
        self.position = self._through = expected  # committed at once, in case the cluster had forgotten it
        self.recovered.set()
        while batch := await self.inbox.take():
            fresh = [record for record in batch if record.offset >= expected]
            for record in fresh:
                if record.offset != expected:
                    await self._check_gap(expected, record.offset)
                expected = record.offset + 1
            if fresh:
                await self._room.wait_in_loop()
                self._through = await self.handler.handle(fresh)
                self.position = expected

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
