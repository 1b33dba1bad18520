"""What is known of the topic ``resources``. One partition, so "latest" and "older" are a matter of offsets."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TypeAlias

from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.schemas.records import ResourcesRecord

from .waiters import Waiters

__all__ = ["Older", "ResourceVersions", "Version", "holds"]

CATCH_UP_TIMEOUT_S = 30.0
"""How long a reader waits for what it is known to have seen elsewhere: a broker's restart passes."""

RESOURCES_KEPT_MAX = 10_000
"""Resources kept whole in memory (about 1 KB each): those that were written last. Of older ones the number is."""

Older: TypeAlias = Callable[[Sequence[str]], Awaitable[Mapping[str, ResourcesRecord]]]


@dataclass(frozen=True, slots=True)
class Version:
    """A version that holds.

    Attributes:
        offset: of its record.
        record: ``None`` where it is not kept here any more.
    """

    number: int
    offset: int
    record: ResourcesRecord | None


def holds(record: ResourcesRecord, before: Version | None) -> bool:
    """Whether the record is the version that it says, ``before`` being what holds of those before it in the log.

    Of stores that make a version at the same time, the first in the log has its number; the others' records do not
    hold, and are written again under another. What stores did not write (it has no write ids) is as its writer says.
    """
    return before is None or record.version > before.number or not record.write_ids


class ResourceVersions:
    """Resources as read from the log. Thread-safe.

    Args:
        older: tells the resources of these ids, which are not kept here any more.
        kept_max: so many are kept whole.
    """

    def __init__(self, older: Older, *, kept_max: int = RESOURCES_KEPT_MAX) -> None:
        self._older = older
        self._kept_max = kept_max
        self._lock = threading.Lock()
        self._waiters = Waiters(self._lock)
        self._known: dict[str, Version] = {}
        self._whole: OrderedDict[str, None] = OrderedDict()
        """Ids of those that are kept whole, by their last write."""
        self._latest: tuple[int, ResourcesRecord] | None = None
        self._expected: dict[str, Future[Version | None]] = {}
        self._read_up_to = -1
        self._seen = -1
        self._stopped = False

    def read(self, record: ResourcesRecord, offset: int) -> None:
        """The record at ``offset`` of the log; all before it have been read."""
        with self._lock:
            known = self._known.get(record.resources_id)
            expected = self._expected.get(record.write_ids[-1]) if record.write_ids else None
            if expected is not None and not expected.done():
                expected.set_result(known)
            if holds(record, known):
                self._keep(record, offset)
        self.passed(offset)

    def passed(self, offset: int) -> None:
        """Everything up to ``offset`` has been read."""
        with self._lock:
            self._read_up_to = max(offset, self._read_up_to)
        self._waiters.look()

    def expect(self, record: ResourcesRecord) -> Future[Version | None]:
        """A future of the version that holds before the record, once the record is read.

        Call it before the record is written, and :meth:`forget` after it. It is known by the last of its write ids.
        """
        future: Future[Version | None] = Future()
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
            ServiceUnavailableError: what a reader here has seen elsewhere could not be read in time, or who tells of
                older ones does not answer.
        """
        await self._catch_up()
        await self._waiters.until(lambda: self._is_there(resources_id) or self._stopped, timeout_s)
        with self._lock:
            if resources_id is None:
                return None if self._latest is None else self._latest[1]
            known = self._known.get(resources_id)
        if known is None or known.record is not None:
            return None if known is None else known.record
        return (await self._older([resources_id])).get(resources_id)

    async def all(self) -> list[ResourcesRecord]:
        """All there are, by the time they were first stored; raises as :meth:`find`."""
        await self._catch_up()
        with self._lock:
            known = {resources_id: version.record for resources_id, version in self._known.items()}
        older_ids = [resources_id for resources_id, record in known.items() if record is None]
        older = await self._older(older_ids) if older_ids else {}
        found = [older.get(resources_id) if record is None else record for resources_id, record in known.items()]
        return [record for record in found if record is not None]

    async def count(self) -> int:
        """How many there are; raises as :meth:`find`."""
        await self._catch_up()
        with self._lock:
            return len(self._known)

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

    def _keep(self, record: ResourcesRecord, offset: int) -> None:
        """Under the lock."""
        name = record.resources_id
        self._known[name] = Version(record.version, offset, record)
        self._latest = (offset, record)
        self._whole[name] = None
        self._whole.move_to_end(name)
        if len(self._whole) > self._kept_max:
            oldest, _ = self._whole.popitem(last=False)
            self._known[oldest] = replace(self._known[oldest], record=None)

    def _is_there(self, resources_id: str | None) -> bool:
        """Under the lock."""
        return self._latest is not None if resources_id is None else resources_id in self._known

    async def _catch_up(self) -> None:
        if not await self._waiters.until(lambda: self._read_up_to >= self._seen or self._stopped, CATCH_UP_TIMEOUT_S):
            raise ServiceUnavailableError(
                f"resources were seen at offset {self._seen}, but are read only up to {self._read_up_to} here.",
                next_step="Does Kafka answer? `lightstream status` shows it.",
            )
