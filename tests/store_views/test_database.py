"""The file: one owner, rows and offsets together, rebuilt when it was made from something else."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.schemas.examples import example_of
from lightstream.schemas.records import WorkerHeartbeat
from lightstream.store_views.materialiser import ViewDatabase
from lightstream.store_views.materialiser.arrow_rows import LoggedRecord, arrow_table
from lightstream.store_views.materialiser.view_file import default_memory_bytes
from lightstream.store_views.tables import tables_of

OPEN_ELSEWHERE = """
import sys; from pathlib import Path
from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.store_views.materialiser import ViewDatabase
try: ViewDatabase(Path(sys.argv[1]), {})
except ServiceUnavailableError as error: print(error)
"""

APPEND_AND_DIE = """
import os, signal, sys; from pathlib import Path
from lightstream.store_views.materialiser import ViewDatabase, database as module
from tests.store_views.test_database import workers
module.CHECKPOINT_BYTES = 1
database = ViewDatabase(Path(sys.argv[1]), {"topic a": "1"})
database.append(workers(0), {("workers", 0): 1})
database.checkpoint_if_due()  # all of it is in the file
database.append(workers(1), {("workers", 0): 2})
os.kill(os.getpid(), signal.SIGKILL)
"""

FILL_THE_DISK = """
import resource, sys; from pathlib import Path
from lightstream.schemas.errors import QueryError
from lightstream.store_views.materialiser import ViewDatabase
from lightstream.store_views.server import QueryLimits, run_query
from tests.store_views.test_database import count, workers
database = ViewDatabase(Path(sys.argv[1]), {}, memory_bytes_max=64 * 1024**2)
resource.setrlimit(resource.RLIMIT_FSIZE, (4 * 1024**2, resource.RLIM_INFINITY))  # as a full disk, a write fails
database.append(workers(0), {("workers", 0): 1})
try:
    run_query(database.cursor(), "SELECT * FROM range(20000000) AS a(x) ORDER BY hash(x)", QueryLimits())
except QueryError as error:
    print(error)
database.append(workers(1), {("workers", 0): 2})
print(count(database), "rows")
database.close()
"""


def workers(*offsets: int) -> dict[str, pa.Table]:
    record = example_of(WorkerHeartbeat)
    logged = [LoggedRecord(record, 0, offset, 1) for offset in offsets]
    return {table.name: arrow_table(table, logged) for table in tables_of(WorkerHeartbeat)}


def count(database: ViewDatabase) -> int:
    ((rows,),) = database.cursor().execute("SELECT count(*) FROM workers_raw").fetchall()
    return int(rows)


def test_rows_and_offsets_survive_reopening(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "view.duckdb"
    database = ViewDatabase(path, {"topic a": "1"})
    database.append(workers(0, 1), {("workers", 0): 2, ("spans", 3): 7})
    database.append(workers(2), {("workers", 0): 3})
    database.close()
    database = ViewDatabase(path, {"topic a": "1", "topic new": "2"})
    assert database.next_offsets() == {("workers", 0): 3, ("spans", 3): 7}
    assert count(database) == 3
    database.close()


def test_a_failing_append_changes_nothing_and_the_next_one_works(tmp_path: Path) -> None:
    database = ViewDatabase(tmp_path / "view.duckdb", {})
    with pytest.raises(duckdb.Error):
        database.append({**workers(0), "dead_letters_raw": pa.table({"wrong": [1]})}, {("workers", 0): 1})
    assert (count(database), database.next_offsets()) == (0, {})
    database.append(workers(0), {("workers", 0): 1})
    assert (count(database), database.next_offsets()) == (1, {("workers", 0): 1})
    database.close()


def test_a_second_process_is_told_who_owns_the_file(tmp_path: Path) -> None:
    path = tmp_path / "view.duckdb"
    database = ViewDatabase(path, {})
    command = [sys.executable, "-c", OPEN_ELSEWHERE, str(path)]
    refused = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"{path} is owned by process" in refused
    assert "lightstream sql" in refused
    with pytest.raises(ServiceUnavailableError, match="is owned by process"):
        ViewDatabase(path, {})
    database.close()
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == ""


def test_a_file_made_from_other_topics_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "view.duckdb"
    database = ViewDatabase(path, {"topic workers": "first"})
    database.append(workers(0), {("workers", 0): 1})
    database.close()
    database = ViewDatabase(path, {"topic workers": "made again"})
    assert (count(database), database.next_offsets()) == (0, {})
    database.close()
    with duckdb.connect(str(path.with_name("view.duckdb.old")), read_only=True) as old:
        assert old.execute("SELECT count(*) FROM workers_raw").fetchall() == [(1,)]


def _damaged(content: bytes, how: str) -> bytes:
    middle = len(content) // 2
    return {
        "a text": b"Dear diary,\n" * 1000,
        "empty": b"",
        "zeros": bytes(len(content)),
        "cut off": content[:middle],
        "a cut-off head": content[:100],
        "another head": content[:100] + b"x" * 100 + content[200:],
        "another middle": content[:12_400] + b"x" * 100 + content[12_500:],
    }[how]


@pytest.mark.parametrize(
    "how", ["a text", "empty", "zeros", "cut off", "a cut-off head", "another head", "another middle"]
)
def test_a_file_that_cannot_be_read_is_set_aside(tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "view.duckdb"
    database = ViewDatabase(path, {})
    database.append(workers(0), {("workers", 0): 1})
    database.close()
    damaged = _damaged(path.read_bytes(), how)
    path.write_bytes(damaged)
    with caplog.at_level(logging.WARNING):
        database = ViewDatabase(path, {})
    assert database.next_offsets() == database.shown == {}
    database.append(workers(0), {("workers", 0): 1})
    assert count(database) == 1
    database.close()
    assert path.with_name("view.duckdb.old").read_bytes() == damaged
    (said,) = caplog.messages
    assert "cannot be read" in said
    assert "view.duckdb.old" in said


def test_a_file_that_was_cut_off_anywhere_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "view.duckdb"
    database = ViewDatabase(path, {})
    for offset in range(20):
        database.append(workers(offset), {("workers", 0): offset + 1})
    database.close()
    content = path.read_bytes()
    for tenth in range(10):
        path.write_bytes(content[: len(content) * tenth // 10 + 1])
        database = ViewDatabase(path, {})
        assert (count(database), database.next_offsets(), database.shown) == (0, {}, {}), tenth
        database.append(workers(0), {("workers", 0): 1})
        assert count(database) == 1, tenth
        database.close()


def _checksum(block: bytes) -> int:
    """As DuckDB has it, of a whole number of words."""
    found = 5381
    for at in range(0, len(block), 8):
        found ^= int.from_bytes(block[at : at + 8], "little") * 0xBF58476D1CE4E5B9 % 2**64
    return found


def test_a_file_of_a_newer_duckdb_is_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "view.duckdb"
    ViewDatabase(path, {}).close()
    content = bytearray(path.read_bytes())
    assert content[8:12] == b"DUCK"
    content[12:20] = (9_999).to_bytes(8, "little")  # the version of the format
    content[:8] = _checksum(bytes(content[8:4096])).to_bytes(8, "little")
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        ViewDatabase(path, {}).close()
    assert path.with_name("view.duckdb.old").read_bytes() == content
    assert "version number 9999" in caplog.text


@pytest.mark.parametrize(
    "made", ["TABLE rollouts (x INTEGER)", "VIEW rollouts AS SELECT 1 AS x", "TABLE origin (x INT)"]
)
def test_a_file_that_something_else_has_made_is_set_aside(tmp_path: Path, made: str) -> None:
    path = tmp_path / "view.duckdb"
    with duckdb.connect(str(path)) as theirs:
        theirs.execute(f"CREATE {made}")
    database = ViewDatabase(path, {})
    assert database.cursor().execute("FROM rollouts").fetchall() == []
    database.close()
    with duckdb.connect(str(path.with_name("view.duckdb.old")), read_only=True) as theirs:
        assert theirs.execute(f"FROM {made.split()[1]}").fetchall() in ([], [(1,)])


def test_a_query_that_finds_the_disk_full_is_an_error_and_the_file_lives_on(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FILL_THE_DISK, str(tmp_path / "view.duckdb")], capture_output=True, text=True
    )
    assert done.stdout.split("\n")[-2:] == ["2 rows", ""], done.stdout + done.stderr
    assert "could not write" in done.stdout.lower() or "file too large" in done.stdout.lower()


def test_a_file_that_may_not_be_opened_stays_and_is_one_message(tmp_path: Path) -> None:
    path = tmp_path / "view.duckdb"
    path.mkdir()
    with pytest.raises(ServiceUnavailableError, match=r"view.duckdb cannot be opened: .*Is a directory"):
        ViewDatabase(path, {})
    assert path.is_dir()
    path.rmdir()
    ViewDatabase(path, {}).close()


def test_a_reader_keeps_its_snapshot_and_does_not_block_the_writer(tmp_path: Path) -> None:
    database = ViewDatabase(tmp_path / "view.duckdb", {})
    database.append(workers(0), {("workers", 0): 1})
    reader = database.cursor()
    reader.execute("BEGIN TRANSACTION READ ONLY")
    assert reader.execute("SELECT count(*) FROM workers_raw").fetchall() == [(1,)]
    for offset in range(1, 50):
        database.append(workers(offset), {("workers", 0): offset + 1})
    assert reader.execute("SELECT count(*) FROM workers_raw").fetchall() == [(1,)]
    assert reader.execute("SELECT next_offset FROM offsets").fetchall() == [(1,)]
    reader.execute("COMMIT")
    assert count(database) == 50
    database.close()


def test_memory_is_limited_as_asked(tmp_path: Path) -> None:
    database = ViewDatabase(tmp_path / "view.duckdb", {}, memory_bytes_max=512 * 1024**2)
    assert database.cursor().execute("SELECT current_setting('memory_limit')").fetchall() == [("512.0 MiB",)]
    database.close()


@pytest.mark.parametrize(
    ("limit", "expected"), [("1000000000\n", 500_000_000), ("99999999999999\n", None), ("max\n", None)]
)
def test_memory_is_half_of_the_containers(tmp_path: Path, limit: str, expected: int | None) -> None:
    file = tmp_path / "memory.max"
    without = default_memory_bytes(file)
    file.write_text(limit)
    assert default_memory_bytes(file) == (expected or without)


def test_what_a_killed_process_had_spilled_is_removed(tmp_path: Path) -> None:
    left = tmp_path / "view.duckdb.tmp" / "duckdb_temp_1_0_storage_DEFAULT-0.tmp"
    left.parent.mkdir()
    left.write_bytes(b"left")
    database = ViewDatabase(tmp_path / "view.duckdb", {})
    assert not left.exists()
    database.close()


def test_what_a_crash_takes_is_a_whole_number_of_transactions_and_what_was_shown_is_known(tmp_path: Path) -> None:
    path = tmp_path / "view.duckdb"
    killed = subprocess.run([sys.executable, "-c", APPEND_AND_DIE, str(path)], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    database = ViewDatabase(path, {"topic a": "1"})
    offsets = database.next_offsets()
    assert offsets == {("workers", 0): 1}, "the last checkpoint"
    assert count(database) == 1
    assert database.shown == {("workers", 0): 2}
    database.append(workers(1), {("workers", 0): 2})
    database.close()
    database = ViewDatabase(path, {"topic a": "1"})
    assert (database.next_offsets(), count(database)) == ({("workers", 0): 2}, 2), "closing makes a checkpoint"
    database.close()
    database = ViewDatabase(path, {"topic a": "another"})
    assert database.shown == {}, "of another log"
    database.close()


def test_a_damaged_note_of_what_was_shown_is_none(tmp_path: Path) -> None:
    path = tmp_path / "view.duckdb"
    for text in (b"", b"[[", b'{"a": 1}\n', b'[["spans", "x", 1]]\n', b'[["spans", 0, 1]]'):
        path.with_name("view.duckdb.shown").write_bytes(text)
        database = ViewDatabase(path, {})
        assert database.shown == {}
        database.close()
