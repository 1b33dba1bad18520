"""The latest is what was read last, a reader waits for what it has seen, a writer learns what lay before its own."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Sequence
from functools import partial

import pytest

from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.schemas.records import ResourcesRecord
from lightstream.store_views.stores.kafka.resources import ResourceVersions, Version
from tests.support.older_resources import none_older


def record(offset: int, write_id: str | None = None) -> ResourcesRecord:
    return ResourcesRecord(
        resources_id=f"rs-{offset % 3}",
        version=offset,
        created_unix_nano=offset,
        write_ids=[] if write_id is None else [write_id],
    )


async def test_the_latest_is_what_was_read_last() -> None:
    versions = ResourceVersions(none_older)
    assert ((await versions.find(None, 0.0)), versions.latest_offset()) == (None, -1)
    for offset in range(10):
        versions.read(record(offset), offset)
        assert ((await versions.find(None, 0.0)), versions.latest_offset()) == (record(offset), offset)
        assert (await versions.find(f"rs-{offset % 3}", 0.0)) == record(offset)
    assert [known.version for known in (await versions.all())] == [9, 7, 8]


async def test_a_writer_learns_what_the_log_has_before_its_own() -> None:
    versions = ResourceVersions(none_older)
    mine = record(6, "mine")
    first = versions.expect(mine)
    versions.read(record(1), 1)
    versions.read(record(3, "another's"), 3)
    assert not first.done()
    versions.read(mine, 6)
    assert first.result() == Version(3, 3, record(3, "another's"))
    versions.forget(mine)
    alone = record(2, "mine again")
    second = versions.expect(alone)
    versions.read(alone, 7)
    assert second.result() is None


async def test_the_first_of_a_number_holds() -> None:
    versions = ResourceVersions(none_older)
    first, other, after = record(3, "first"), record(3, "other"), record(6, "after")
    for offset, read in enumerate([first, other, after, first, other]):
        versions.read(read, offset)
        assert (
            (await versions.find("rs-0", 0.0)) == (await versions.find(None, 0.0)) == (first if offset < 2 else after)
        )
    not_by_a_store = record(0)
    versions.read(not_by_a_store, 5)
    assert (await versions.find("rs-0", 0.0)) == not_by_a_store


async def test_what_is_not_kept_whole_is_asked_for_and_its_number_known() -> None:
    asked: list[Sequence[str]] = []

    async def older(resources_ids: Sequence[str]) -> dict[str, ResourcesRecord]:
        asked.append(resources_ids)
        return {name: record(1).model_copy(update={"resources_id": name}) for name in resources_ids}

    versions = ResourceVersions(older, kept_max=2)
    for offset in (0, 1, 2, 3):  # of rs-0 the version 0, of rs-1 and rs-2 too, and rs-0 again: rs-1 is the oldest
        versions.read(record(offset, f"w{offset}"), offset)
    assert (await versions.find("rs-0", 0.0)) == record(3, "w3")
    assert (await versions.find("rs-2", 0.0)) == record(2, "w2")
    assert not asked
    assert (await versions.find("rs-1", 0.0)) == record(1)
    assert [known.resources_id for known in (await versions.all())] == ["rs-0", "rs-1", "rs-2"]
    assert asked == [["rs-1"], ["rs-1"]]
    assert (await versions.count()) == 3
    versions.read(record(1, "too late"), 4)  # its number was told before
    assert (await versions.find("rs-1", 0.0)) == record(1)
    assert len(asked) == 3
    versions.read(record(4, "next"), 5)
    assert (await versions.find("rs-1", 0.0)) == (await versions.find(None, 0.0)) == record(4, "next")


async def test_a_writer_is_told_when_nothing_will_be_read_any_more() -> None:
    versions = ResourceVersions(none_older)
    expected = versions.expect(record(0, "mine"))
    versions.stop()
    with pytest.raises(ServiceUnavailableError, match="closed"):
        expected.result()


async def test_a_reader_waits_for_what_it_has_seen_elsewhere() -> None:
    async def scenario() -> None:
        versions = ResourceVersions(none_older)
        versions.read(record(0), 0)
        versions.observe(2)
        readers = [asyncio.create_task(versions.find(None, 0.0)), asyncio.create_task(first_of(versions))]
        await asyncio.sleep(0)
        for step in (partial(versions.read, record(1), 1), partial(versions.passed, 2)):
            await asyncio.sleep(0)
            assert not any(reader.done() for reader in readers)
            step()  # what stood at 2 was compacted away, or is a transaction's end
        assert await asyncio.gather(*readers) == [record(1), record(0)]

    async def first_of(versions: ResourceVersions) -> ResourcesRecord:
        return (await versions.all())[0]

    await scenario()


async def test_who_waits_for_resources_takes_no_thread_and_leaves_nothing() -> None:
    versions, threads = ResourceVersions(none_older), threading.active_count()
    waiting = [asyncio.create_task(versions.find(f"rs-{number % 2}", math.inf)) for number in range(200)]
    assert await versions.find("nobody's", 0.01) is None
    assert threading.active_count() == threads
    assert await versions.all() == []
    for leaves in waiting[::2]:
        leaves.cancel()
    await asyncio.wait(waiting[::2])
    assert len(versions._changed._waiting) == 100  # pyright: ignore[reportPrivateUsage]  # what it keeps
    versions.read(record(1), 0)
    assert await asyncio.gather(*waiting[1::2]) == [record(1)] * 100
    assert not versions._changed._waiting  # pyright: ignore[reportPrivateUsage]  # what it keeps


async def test_who_waits_is_told_when_nothing_will_be_read_any_more() -> None:
    versions = ResourceVersions(none_older)
    waiting = asyncio.create_task(versions.find(None, math.inf))
    await asyncio.sleep(0)
    versions.stop()
    assert await waiting is None
