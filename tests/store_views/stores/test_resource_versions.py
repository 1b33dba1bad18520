"""The latest is what was read last, a reader waits for what it has seen, a writer learns what lay before its own."""

from __future__ import annotations

import threading

import pytest

from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.schemas.records import ResourcesRecord
from lightstream.store_views.stores.kafka.resource_versions import ResourceVersions


def record(offset: int, write_id: str | None = None) -> ResourcesRecord:
    return ResourcesRecord(
        resources_id=f"rs-{offset % 3}",
        version=offset,
        created_unix_nano=offset,
        write_ids=[] if write_id is None else [write_id],
    )


def test_the_latest_is_what_was_read_last() -> None:
    versions = ResourceVersions()
    assert (versions.find(None, 0.0), versions.latest_offset()) == (None, -1)
    for offset in range(10):
        versions.read(record(offset), offset)
        assert (versions.find(None, 0.0), versions.latest_offset()) == (record(offset), offset)
        assert versions.find(f"rs-{offset % 3}", 0.0) == record(offset)
    assert [known.version for known in versions.all()] == [9, 7, 8]


def test_a_writer_learns_what_the_log_has_before_its_own() -> None:
    versions = ResourceVersions()
    mine = record(6, "mine")
    first = versions.expect(mine)
    versions.read(record(1), 1)
    versions.read(record(3, "another's"), 3)
    assert not first.done()
    versions.read(mine, 6)
    assert first.result() == record(3, "another's")
    versions.forget(mine)
    alone = record(2, "mine again")
    second = versions.expect(alone)
    versions.read(alone, 7)
    assert second.result() is None


def test_the_first_of_a_number_holds() -> None:
    versions = ResourceVersions()
    first, other, after = record(3, "first"), record(3, "other"), record(6, "after")
    for offset, read in enumerate([first, other, after, first, other]):
        versions.read(read, offset)
        assert versions.find("rs-0", 0.0) == versions.find(None, 0.0) == (first if offset < 2 else after)
    not_by_a_store = record(0)
    versions.read(not_by_a_store, 5)
    assert versions.find("rs-0", 0.0) == not_by_a_store


def test_a_writer_is_told_when_nothing_will_be_read_any_more() -> None:
    versions = ResourceVersions()
    expected = versions.expect(record(0, "mine"))
    versions.stop()
    with pytest.raises(ServiceUnavailableError, match="closed"):
        expected.result(0)


def test_a_reader_waits_for_what_it_has_seen_elsewhere() -> None:
    versions = ResourceVersions()
    versions.read(record(0), 0)
    versions.seen(2)
    assert versions.is_behind()
    found: list[ResourcesRecord | None] = []
    reader = threading.Thread(target=lambda: found.append(versions.find(None, 0.0)))
    reader.start()
    versions.read(record(1), 1)
    assert found == []
    versions.passed(2)  # what stood at 2 was compacted away, or is a transaction's end
    reader.join(60)
    assert found == [record(1)]
    assert not versions.is_behind()
