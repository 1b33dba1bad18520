"""Records of one partition on their way from Faust's stream to the processor."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

BATCH_RECORDS_MAX = 200
"""About 30 ms of work at once: longer would hold up the other partitions, shorter costs a round trip more often."""

BATCH_BYTES_MAX = 16 * 1024 * 1024


class LogRecord(NamedTuple):
    """One record as it lies in the log.

    Attributes:
        logged_unix_nano: its time there, in whole milliseconds: the broker's, in topics that say so
            (``Topic.by_broker_time``), else its writer's; 0 where that is not known.
        writer: the version of Lightstream that wrote it, where that is known.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    logged_unix_nano: int = 0
    writer: str | None = None


class Budget:
    """The limit of all inboxes together, beyond which the worker fetches no more. One fetch may overshoot it."""

    def __init__(self, records_max: int, bytes_max: int) -> None:
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._records = 0
        self._bytes = 0
        self._room = asyncio.Event()
        self._room.set()

    def add(self, records: int, size_bytes: int) -> None:
        """Count incoming records; negative for outgoing ones."""
        self._records += records
        self._bytes += size_bytes
        if self._records < self._records_max and self._bytes < self._bytes_max:
            self._room.set()
        else:
            self._room.clear()

    async def wait_for_room(self, timeout_s: float) -> bool:
        """Whether there is room within ``timeout_s`` seconds."""
        if self._room.is_set():
            return True
        try:
            await asyncio.wait_for(self._room.wait(), timeout_s)
        except TimeoutError:
            return False
        return True


class Inbox:
    """A queue with one writer (the Faust agent) and one reader (the partition's task). Not thread-safe."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._records: deque[LogRecord] = deque()
        self._filled = asyncio.Event()
        self._closed = False

    def put(self, records: Sequence[LogRecord]) -> None:
        """Add records, in order. After :meth:`close` they are dropped: they stay in Kafka."""
        if self._closed:
            return
        self._records.extend(records)
        self._budget.add(len(records), _size_bytes(records))
        self._filled.set()

    async def take(self) -> list[LogRecord]:
        """The records that are there, in order, as soon as there are any; an empty list once closed."""
        while not self._records and not self._closed:
            self._filled.clear()
            await self._filled.wait()
        batch: list[LogRecord] = []
        size = 0
        while self._records and len(batch) < BATCH_RECORDS_MAX and size < BATCH_BYTES_MAX:
            record = self._records.popleft()
            size += len(record.value or b"")
            batch.append(record)
        self._budget.add(-len(batch), -size)
        return batch

    def close(self) -> None:
        """Drop the rest and let the reader go on."""
        self._closed = True
        self._budget.add(-len(self._records), -_size_bytes(self._records))
        self._records.clear()
        self._filled.set()


def _size_bytes(records: Sequence[LogRecord] | deque[LogRecord]) -> int:
    return sum(len(record.value or b"") for record in records)
