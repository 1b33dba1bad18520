"""Several processes that make versions of the same resources at once: each number is one call's alone."""

from __future__ import annotations

import asyncio

import pytest

from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.schemas.records import ResourcesRecord
from lightstream.store_views.stores.kafka.resources import ResourceVersions, ResourceWriter
from tests.support.older_resources import none_older


class Log:
    """The topic, and the stores that follow it. A record is read by all once ``reads`` are allowed."""

    def __init__(self, stores: int) -> None:
        self.records: list[ResourcesRecord] = []
        self.reads = asyncio.Event()
        self._more = asyncio.Semaphore(0)
        self.versions = [ResourceVersions(none_older) for _ in range(stores)]
        self.writers = [ResourceWriter(self._write, versions, patience_s=60.0) for versions in self.versions]

    async def _write(self, record: ResourcesRecord) -> int:
        self.records.append(record)
        self._more.release()
        offset = len(self.records) - 1
        await self.reads.wait()
        for versions in self.versions:
            versions.read(record, offset)
        return offset

    async def written(self, count: int) -> None:
        """Wait until so many more records are written."""
        for _ in range(count):
            await self._more.acquire()

    async def update(self, store: int, name: str) -> ResourcesRecord:
        def make(known: ResourcesRecord | None) -> ResourcesRecord:
            if known is not None and name in known.write_ids:
                return known
            return ResourcesRecord(
                resources_id="rs",
                version=1 if known is None else known.version + 1,
                resources={"name": name},
                created_unix_nano=0,
                write_ids=[*(() if known is None else known.write_ids), name],
            )

        async def last() -> ResourcesRecord | None:
            return await self.versions[store].find("rs", 0.0)

        return await self.writers[store].keep("rs", make, last)


@pytest.mark.parametrize(("stores", "each"), [(1, 10), (2, 1), (5, 2)])
async def test_each_number_is_one_calls_alone(stores: int, each: int) -> None:
    log = Log(stores)
    calls = [
        asyncio.create_task(log.update(store, f"{store}-{number}")) for store in range(stores) for number in range(each)
    ]
    await log.written(stores)  # one by each store, before any is read
    log.reads.set()
    made = await asyncio.gather(*calls)
    assert sorted(record.version for record in made) == list(range(1, stores * each + 1))
    last = max(made, key=lambda record: record.version)
    assert log.records[-1] == last
    assert sorted(last.write_ids) == sorted(record.resources["name"] for record in made)


async def test_the_same_write_done_by_two_is_one_version() -> None:
    log = Log(2)
    calls = [asyncio.create_task(log.update(store, "the same")) for store in range(2)]
    await log.written(2)
    log.reads.set()
    assert [record.version for record in await asyncio.gather(*calls)] == [1, 1]
    assert (await log.update(0, "another")).version == 2


def test_what_is_not_read_back_has_no_number() -> None:
    async def write(record: ResourcesRecord) -> None:
        return None

    async def nothing() -> None:
        return None

    def make(known: ResourcesRecord | None) -> ResourcesRecord:
        return ResourcesRecord(resources_id="rs", version=1, created_unix_nano=0, write_ids=["w"])

    writer = ResourceWriter(write, ResourceVersions(none_older), patience_s=0.01)
    with pytest.raises(ServiceUnavailableError, match="not read back"):
        asyncio.run(writer.keep("rs", make, nothing))
