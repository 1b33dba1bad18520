"""The topic ``resources``, read and written. It has one partition, so "latest" and "older" are a matter of offsets."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias
from weakref import WeakValueDictionary

from lightstream.schemas.errors import LightstreamError, ServiceUnavailableError
from lightstream.schemas.records import ResourcesRecord

from ..condition import Condition
from ..log import NextVersion

CATCH_UP_TIMEOUT_S = 30.0
"""A reader waits so long for versions that it has seen elsewhere: a broker's restart passes."""

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


def is_valid(record: ResourcesRecord, before: Version | None) -> bool:
    """Whether the record is the version that it says, given the state ``before`` of earlier ones in the log.

    Of stores that make a version at the same time, the first in the log has its number; the others' records do not
    hold, and are written again under another. What stores did not write (it has no write ids) is as its writer says.
    """
    return before is None or record.version > before.number or not record.write_ids


class ResourceVersions:
    """Resources as read from the log. Belongs to one event loop.

    Args:
        older: tells the resources of these ids, which are not kept here any more.
        kept_max: so many are kept whole.
    """

    def __init__(self, older: Older, *, kept_max: int = RESOURCES_KEPT_MAX) -> None:
        self._older = older
        self._kept_max = kept_max
        self._changed = Condition()
        self._known: dict[str, Version] = {}
        self._whole: OrderedDict[str, None] = OrderedDict()
        """Ids of those that are kept whole, by their last write."""
        self._latest: tuple[int, ResourcesRecord] | None = None
        self._expected: dict[str, asyncio.Future[Version | None]] = {}
        self._read_up_to = -1
        self._observed_offset = -1
        self._stopped = False
        self._failure: LightstreamError | None = None

    def read(self, record: ResourcesRecord, offset: int) -> None:
        """The record at ``offset`` of the log; all before it have been read."""
        known = self._known.get(record.resources_id)
        expected = self._expected.get(record.write_ids[-1]) if record.write_ids else None
        if expected is not None and not expected.done():
            expected.set_result(known)
        if is_valid(record, known):
            self._keep(record, offset)
        self.passed(offset)

    def deleted(self, resources_id: str, offset: int) -> None:
        """The record at ``offset`` says that these resources were deleted, with their run."""
        self._known.pop(resources_id, None)
        self._whole.pop(resources_id, None)
        if self._latest is not None and self._latest[1].resources_id == resources_id:
            remaining = [(known.offset, known.record) for known in self._known.values() if known.record is not None]
            self._latest = max(remaining, key=lambda one: one[0], default=None)
        self.passed(offset)

    def passed(self, offset: int) -> None:
        """Everything up to ``offset`` has been read."""
        self._read_up_to = max(offset, self._read_up_to)
        self._changed.notify()

    def expect(self, record: ResourcesRecord) -> asyncio.Future[Version | None]:
        """A future of the version that holds before the record, once the record is read.

        Call it before the record is written, and :meth:`forget` after it. It is known by the last of its write ids.
        """
        future: asyncio.Future[Version | None] = asyncio.get_running_loop().create_future()
        self._expected[record.write_ids[-1]] = future
        return future

    def forget(self, record: ResourcesRecord) -> None:
        """Nobody waits for this record any more."""
        self._expected.pop(record.write_ids[-1], None)

    def observe(self, offset: int) -> None:
        """A reader here has seen the record at ``offset`` elsewhere: from now on, answers reflect it."""
        self._observed_offset = max(offset, self._observed_offset)

    def latest_offset(self) -> int:
        """Of the latest resources that a reader here may have been told of; -1 before the first."""
        return max(self._observed_offset, -1 if self._latest is None else self._latest[0])

    async def find(self, resources_id: str | None, timeout_s: float) -> ResourcesRecord | None:
        """Resources by id, or the latest; waits up to ``timeout_s`` for them. ``None`` if they did not appear.

        Raises:
            ServiceUnavailableError: what a reader here has seen elsewhere could not be read in time, or who tells of
                older ones does not answer.
        """
        await self._catch_up()
        await self._changed.wait_for(lambda: self._is_there(resources_id) or self._stopped, timeout_s)
        self._check()
        if resources_id is None:
            return None if self._latest is None else self._latest[1]
        known = self._known.get(resources_id)
        if known is None or known.record is not None:
            return None if known is None else known.record
        return (await self._older([resources_id])).get(resources_id)

    async def all(self) -> list[ResourcesRecord]:
        """All there are, by the time they were first stored; raises as :meth:`find`."""
        await self._catch_up()
        known = {resources_id: version.record for resources_id, version in self._known.items()}
        older_ids = [resources_id for resources_id, record in known.items() if record is None]
        older = await self._older(older_ids) if older_ids else {}
        found = [older.get(resources_id) if record is None else record for resources_id, record in known.items()]
        return [record for record in found if record is not None]

    async def count(self) -> int:
        """The number of resources; raises as :meth:`find`."""
        await self._catch_up()
        return len(self._known)

    def stop(self, failure: LightstreamError | None = None) -> None:
        """Nothing will be read any more: wake callers that wait. With a failure, all that ask raise it."""
        self._stopped = True
        self._failure = self._failure or failure
        expected = list(self._expected.values())
        self._changed.notify()
        closed = failure or ServiceUnavailableError("the store was closed before what it wrote was read back.")
        for future in expected:
            if not future.done():
                future.set_exception(closed)

    def _keep(self, record: ResourcesRecord, offset: int) -> None:
        name = record.resources_id
        self._known[name] = Version(record.version, offset, record)
        self._latest = (offset, record)
        self._whole[name] = None
        self._whole.move_to_end(name)
        if len(self._whole) > self._kept_max:
            oldest, _ = self._whole.popitem(last=False)
            self._known[oldest] = replace(self._known[oldest], record=None)

    def _is_there(self, resources_id: str | None) -> bool:
        return self._latest is not None if resources_id is None else resources_id in self._known

    async def _catch_up(self) -> None:
        if not await self._changed.wait_for(
            lambda: self._read_up_to >= self._observed_offset or self._stopped, CATCH_UP_TIMEOUT_S
        ):
            raise ServiceUnavailableError(
                f"resources were seen at offset {self._observed_offset}, "
                f"but are read only up to {self._read_up_to} here.",
                next_step="Does Kafka answer? `lightstream status` shows it.",
            )
        self._check()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure


class ResourceWriter:
    """Writes to ``resources``. Belongs to one event loop.

    Within a store, one call at a time makes a version of the same resources. Another process may make its own of the
    same last version meanwhile, so a call is answered once its record was read back: its number holds if the log has
    none as high before it (:func:`is_valid`). Otherwise the resources are written again, under the
    next number after those. So no two calls are told of one number, and stores pass over what does not hold. (If a
    process is killed before it wrote such resources again, nobody was told of them; a store that starts once the log is
    compacted takes them for the version that they say.)

    Args:
        write: makes a record durable.
        versions: what was read of the topic.
        patience_s: how long a record that is durable may take to be read back.
    """

    def __init__(
        self, write: Callable[[ResourcesRecord], Awaitable[object]], versions: ResourceVersions, patience_s: float
    ) -> None:
        self._write = write
        self._versions = versions
        self._patience_s = patience_s
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # while somebody holds one or waits

    async def keep(
        self, resources_id: str, make: NextVersion, last: Callable[[], Awaitable[ResourcesRecord | None]]
    ) -> ResourcesRecord:
        """Make the next version durable; ``last`` tells the one that is known.

        Raises:
            ServiceUnavailableError: the record was written, but not read back in time.
            StoreError, PublishError: as ``write`` does.
        """
        async with self._locks.setdefault(resources_id, asyncio.Lock()):
            before = await last()
            while (record := make(before)) is not before:
                if is_valid(record, await self._written_after(record)):
                    break
                before = await last()
            return record

    async def _written_after(self, record: ResourcesRecord) -> Version | None:
        """Write it; returns the version that held before it."""
        reading = self._versions.expect(record)
        try:
            await self._write(record)
            return await self._read_back(record, reading)
        finally:
            self._versions.forget(record)

    async def _read_back(self, record: ResourcesRecord, reading: asyncio.Future[Version | None]) -> Version | None:
        try:
            return await asyncio.wait_for(reading, self._patience_s)
        except TimeoutError as error:
            raise ServiceUnavailableError(
                f"{record.resources_id} was written, but not read back within {self._patience_s:g} s: "
                f"whether its version is {record.version} is not known.",
                next_step="Does Kafka answer? `lightstream status` shows it.",
            ) from error
