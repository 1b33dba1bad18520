"""What is known of the topic ``resources``. One partition, so "latest" and "older" are a matter of offsets."""

from __future__ import annotations

import threading
from collections import OrderedDict
from concurrent.futures import Future

from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.schemas.records import ResourcesRecord

from .waiters import Waiters

__all__ = ["ResourceVersions", "holds"]

CATCH_UP_TIMEOUT_S = 30.0
"""How long a reader waits for what it is known to have seen elsewhere: a broker's restart passes."""

RESOURCES_KEPT_MAX = 10_000
"""Versions kept in memory (about 1 KB each); older ones are forgotten here, not in the log."""


def holds(record: ResourcesRecord, before: ResourcesRecord | None) -> bool:
    """Whether the record is the version that it says, ``before`` being what holds of those before it in the log.

    Of stores that make a version at the same time, the first in the log has its number; the others' records do not
    hold, and are written again under another. What stores did not write (it has no write ids) is as its writer says.
    """
    return before is None or record.version > before.version or not record.write_ids


class ResourceVersions:
    """Resources as read from the log. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiters = Waiters(self._lock)
        self._known: OrderedDict[str, tuple[int, ResourcesRecord]] = OrderedDict()
        self._latest: tuple[int, ResourcesRecord] | None = None
        self._expected: dict[str, Future[ResourcesRecord | None]] = {}
        self._read_up_to = -1
        self._seen = -1
        self._stopped = False

    def read(self, record: ResourcesRecord, offset: int) -> None:
        """The record at ``offset`` of the log; all before it have been read."""
        with self._lock:
            at = self._known.get(record.resources_id)
            known = None if at is None else at[1]
            expected = self._expected.get(record.write_ids[-1]) if record.write_ids else None
            if expected is not None and not expected.done():
                expected.set_result(known)
            if holds(record, known):
                self._known[record.resources_id] = self._latest = (offset, record)
            if len(self._known) > RESOURCES_KEPT_MAX:
                self._known.popitem(last=False)
        self.passed(offset)

    def passed(self, offset: int) -> None:
        """Everything up to ``offset`` has been read."""
        with self._lock:
            self._read_up_to = max(offset, self._read_up_to)
        self._waiters.look()

    def expect(self, record: ResourcesRecord) -> Future[ResourcesRecord | None]:
        """A future of the version that holds before the record, once the record is read.

        Call it before the record is written, and :meth:`forget` after it. It is known by the last of its write ids.
        """
        future: Future[ResourcesRecord | None] = Future()
        with self._lock:
            self._expected[record.write_ids[-1]] = future
        return future

    def forget(self, record: ResourcesRecord) -> None:
        """Nobody waits for this record any more."""
        with self._lock:
            self._expected.pop(record.write_ids[-1], None)

    def seen(self, offset: int) -> None:
        """A reader here has seen the record at ``offset`` elsewhere: from now on, what is told reflects it."""
        with self._lock:
            self._seen = max(offset, self._seen)

    def latest_offset(self) -> int:
        """Of the latest resources that a reader here may have been told of; -1 before the first."""
        with self._lock:
            return max(self._seen, -1 if self._latest is None else self._latest[0])

    async def find(self, resources_id: str | None, timeout_s: float) -> ResourcesRecord | None:
        """Resources by id, or the latest; waits up to ``timeout_s`` for them. ``None`` if they did not appear.

        Raises:
            ServiceUnavailableError: what a reader here has seen elsewhere could not be read in time.
        """

        await self._catch_up()
        await self._waiters.until(lambda: self._found(resources_id) is not None or self._stopped, timeout_s)
        with self._lock:
            return self._found(resources_id)

    async def all(self) -> list[ResourcesRecord]:
        """All that are kept here, by the time they were first stored; raises as :meth:`find`."""
        await self._catch_up()
        with self._lock:
            return [record for _, record in self._known.values()]

    def stop(self) -> None:
        """Nobody reads any more: wake whoever waits."""
        with self._lock:
            self._stopped = True
            expected = list(self._expected.values())
        self._waiters.look()
        closed = ServiceUnavailableError("the store was closed before what it wrote was read back.")
        for future in expected:
            if not future.done():
                future.set_exception(closed)

    def _found(self, resources_id: str | None) -> ResourcesRecord | None:
        """Under the lock."""
        known = self._latest if resources_id is None else self._known.get(resources_id)
        return None if known is None else known[1]

    async def _catch_up(self) -> None:
        if not await self._waiters.until(lambda: self._read_up_to >= self._seen or self._stopped, CATCH_UP_TIMEOUT_S):
            raise ServiceUnavailableError(
                f"resources were seen at offset {self._seen}, but are read only up to {self._read_up_to} here.",
                next_step="Does Kafka answer? `lightstream status` shows it.",
            )
