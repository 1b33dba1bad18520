"""A snapshot is the committed state, whole, while appending goes on."""

from __future__ import annotations

import threading
from pathlib import Path

import duckdb

from lightstream.store_views.snapshot import publish_snapshot
from tests.store_views.log_file import LogFile
from tests.stream_processors.assembly.build import proxy_span

COUNTS = "SELECT (SELECT count(*) FROM spans_raw), (SELECT next_offset FROM offsets), (SELECT count(*) FROM spans)"


def test_snapshots_agree_with_their_offsets_whatever_is_appended_meanwhile(log: LogFile, tmp_path: Path) -> None:
    target = tmp_path / "published" / "view.duckdb"
    ending = threading.Event()

    def append() -> None:
        number = 0
        while not ending.is_set():
            log.write(proxy_span(number))
            number += 1

    log.write(proxy_span(1))
    writer = threading.Thread(target=append)
    writer.start()
    seen = 0
    for _ in range(5):
        assert publish_snapshot(log.database, target) == target
        with duckdb.connect(str(target), read_only=True) as snapshot:
            ((rows, next_offset, _),) = snapshot.execute(COUNTS).fetchall()
            assert rows == next_offset >= seen
            seen = rows
    ending.set()
    writer.join()
    assert [path.name for path in target.parent.iterdir()] == [target.name]
