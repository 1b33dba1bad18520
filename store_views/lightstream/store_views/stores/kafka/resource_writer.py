"""Writes versions of resources, each number once: the log's order decides between those who write at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future

from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.schemas.records import ResourcesRecord

from .._logged import NextVersion
from .._loop_calls import future_in
from .keyed_lock import KeyedLock
from .resource_versions import ResourceVersions, Version, holds

__all__ = ["ResourceWriter"]


class ResourceWriter:
    """Writes to ``resources``. Thread-safe.

    Within a store, one call at a time makes a version of the same resources. Another process may make its own of the
    same last version meanwhile, so a call is answered once its record was read back: its number holds if the log has
    none as high before it (:func:`~.resource_versions.holds`). Otherwise the resources are written again, under the
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
        self._keyed_lock = KeyedLock()

    async def keep(
        self, resources_id: str, make: NextVersion, last: Callable[[], Awaitable[ResourcesRecord | None]]
    ) -> ResourcesRecord:
        """Make the next version durable; ``last`` tells the one that is known.

        Raises:
            ServiceUnavailableError: the record was written, but not read back in time.
            StoreError, PublishError: as ``write`` does.
        """
        async with self._keyed_lock.alone(resources_id):
            before = await last()
            while (record := make(before)) is not before:
                if holds(record, await self._written_after(record)):
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

    async def _read_back(self, record: ResourcesRecord, reading: Future[Version | None]) -> Version | None:
        try:
            return await asyncio.wait_for(future_in(asyncio.get_running_loop(), reading), self._patience_s)
        except TimeoutError as error:
            raise ServiceUnavailableError(
                f"{record.resources_id} was written, but not read back within {self._patience_s:g} s: "
                f"whether its version is {record.version} is not known.",
                next_step="Does Kafka answer? `lightstream status` shows it.",
            ) from error
