"""Records of one partition on their way from Faust's stream to the processor, bounded in number and bytes."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

__all__ = ["Inbox", "LogRecord"]

RECORDS_MAX = 2000
BYTES_MAX = 64 * 1024 * 1024
"""Two records of the largest size. What does not fit waits in Faust, and then in Kafka."""

BATCH_RECORDS_MAX = 200
"""About 30 ms of work at once: longer would hold up the other partitions, shorter costs a round trip more often."""

BATCH_BYTES_MAX = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record as it lies in the log."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class Inbox:
    """A queue with one writer (the Faust agent) and one reader (the partition's task). Not thread-safe."""

    def __init__(self) -> None:
        self._records: deque[LogRecord] = deque()
        self._bytes = 0
        self._filled = asyncio.Event()
        self._drained = asyncio.Event()
        self._closed = False

    async def put(self, record: LogRecord) -> None:
        """Add a record; waits while the inbox is full. After :meth:`close` the record is dropped: it stays in Kafka."""
        while not self._closed and (len(self._records) >= RECORDS_MAX or self._bytes >= BYTES_MAX):
            self._drained.clear()
            await self._drained.wait()
        if self._closed:
            return
        self._records.append(record)
        self._bytes += len(record.value or b"")
        self._filled.set()

    async def take(self) -> list[LogRecord]:
        """What is there, in order, at once or as soon as there is something; an empty list once closed."""
        while not self._records and not self._closed:
            self._filled.clear()
            await self._filled.wait()
        batch: list[LogRecord] = []
        size = 0
        while self._records and len(batch) < BATCH_RECORDS_MAX and size < BATCH_BYTES_MAX:
            record = self._records.popleft()
            size += len(record.value or b"")
            batch.append(record)
        self._bytes -= size
        self._drained.set()
        return batch

    def close(self) -> None:
        """Drop what is left and let both sides go on."""
        self._closed = True
        self._records.clear()
        self._bytes = 0
        self._filled.set()
        self._drained.set()
