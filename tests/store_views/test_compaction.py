"""The view's file is written anew without gaps: what it holds, who reads meanwhile, and every moment of a crash."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import duckdb
import pytest

from lightstream.schemas.examples import example_of
from lightstream.schemas.records import RolloutState, SpanRecord
from lightstream.store_views.materialiser import ViewDatabase
from lightstream.store_views.materialiser import compaction as compaction_module
from lightstream.store_views.materialiser import database as database_module
from lightstream.store_views.materialiser.compaction import Compaction
from lightstream.store_views.tables import KEPT_TABLES, RAW_TABLES
from lightstream.store_views.tables.kept import GROUPS_CHANGED, REASONS_SETTLED
from tests.store_views.call_gate import CallGate
from tests.store_views.log_file import LogFile, open_log_file
from tests.store_views.test_deletions import deletion, records_of
from tests.support.waiting import eventually

ROOM = 10**12
SIZE_MAX = 1.2
"""Of the file against one that was made from the log in one go."""
RUN_ROWS = 600


@pytest.fixture
def any_gap_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "COMPACT_BYTES_MIN", 0)
    monkeypatch.setattr(database_module, "COMPACT_GROWTH_MAX", 0.0)
    monkeypatch.setattr(database_module, "COMPACT_PAUSE_FACTOR", 0.0)


def everything(log: LogFile) -> dict[str, list[str]]:
    """All rows of all tables, in no order; of sums the sums."""
    found = ["offsets", "runs", "reason_codes", *(table.name for table in RAW_TABLES)]
    found += [table.name for table in KEPT_TABLES if not table.keys and table not in (GROUPS_CHANGED, REASONS_SETTLED)]
    return {name: sorted(map(str, log.rows(f"FROM {name}"))) for name in found}


def spans(run: str, numbers: Iterable[int]) -> list[SpanRecord | RolloutState]:
    """A state and a span of some kilobytes of each of these rollouts; no two are alike."""
    made: list[SpanRecord | RolloutState] = []
    for number in numbers:
        rollout = f"{run}/{number}"
        spec = example_of(RolloutState).rollout.model_copy(update={"rollout_id": rollout, "run_id": run})
        made.append(example_of(RolloutState).model_copy(update={"rollout": spec, "event_offset": number}))
        name = os.urandom(2_000).hex()
        made.append(example_of(SpanRecord).model_copy(update={"rollout_id": rollout, "name": name}))
    return made


def finish(database: ViewDatabase, free_bytes: int = ROOM) -> None:
    """Let what is under way come to its end."""

    def is_over() -> bool:
        database.compact_if_due(free_bytes)
        return not database.is_compacting

    if database.is_compacting:
        eventually(is_over, what="the end of a compaction")


def compact(log: LogFile) -> None:
    """Write the file anew, from the beginning to the end."""
    log.database.compact_if_due(ROOM)
    assert log.database.is_compacting
    finish(log.database)


def open_files(folder: Path) -> list[str]:
    """Those of this process in a folder; one that was replaced has its old name and that it is deleted."""
    found = (Path("/proc/self/fd", number) for number in os.listdir("/proc/self/fd"))  # noqa: PTH208  # numbers
    return sorted(link.name for path in found if path.exists() and (link := path.readlink()).parent == folder)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def checkpoint(database: ViewDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(database_module, "CHECKPOINT_BYTES", 1)
        database.checkpoint_if_due()


def test_after_a_deletion_the_file_is_as_small_as_a_rebuilt_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_module, "COMPACT_PAUSE_FACTOR", 0.0)
    rows = 4 * RUN_ROWS
    kept = spans("kept", range(rows))
    with open_log_file(tmp_path / "once", kept) as rebuilt:
        rebuilt_rows = rebuilt.rows("SELECT run_id, rollouts FROM runs")
    with open_log_file(tmp_path / "view") as log:
        path = log.database.path
        for first in range(0, rows, 50):
            log.write(*kept[2 * first : 2 * first + 100])
            log.write(*spans("gone", range(first, first + 50)))
            checkpoint(log.database, monkeypatch)
        compact(log)
        full = path.stat().st_size
        log.write(deletion(log, "gone"))
        checkpoint(log.database, monkeypatch)
        size_max = SIZE_MAX * (tmp_path / "once").stat().st_size + database_module.COMPACT_BYTES_MIN
        assert path.stat().st_size > size_max, "else nothing is to be shown"

        compact(log)

        assert path.stat().st_size <= size_max
        assert path.stat().st_size < full
        assert log.rows("SELECT run_id, rollouts FROM runs") == rebuilt_rows
        inode = path.stat().st_ino
        log.database.compact_if_due(ROOM)
        log.database.compact_if_due(ROOM)
        assert path.stat().st_ino == inode, "it has no gaps now"


def test_under_load_the_file_stays_near_a_rebuilt_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "COMPACT_PAUSE_FACTOR", 0.0)
    records = spans("run", range(RUN_ROWS))
    with open_log_file(tmp_path / "view") as log:
        for first in range(0, len(records), 40):
            log.write(*records[first : first + 40])
            checkpoint(log.database, monkeypatch)
            log.database.compact_if_due(ROOM)
            finish(log.database)
        grown = log.database.path.stat().st_size
        left = everything(log)
    with open_log_file(tmp_path / "once", records) as rebuilt:
        assert left == everything(rebuilt)
    assert grown <= SIZE_MAX * (tmp_path / "once").stat().st_size + database_module.COMPACT_BYTES_MIN


@pytest.mark.usefixtures("any_gap_counts")
def test_rows_that_come_meanwhile_are_in_the_new_file_and_statements_end_on_the_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction_module, "STEP_OFFSETS", 3)
    first, second, third = (records_of(run, number=number) for number, run in enumerate(("a", "b", "a")))
    gate = CallGate(monkeypatch, Compaction, "_follow")
    with open_log_file(tmp_path / "view", first) as log, open_log_file(tmp_path / "plain", first) as plain:
        log.database.compact_if_due(ROOM)
        eventually(lambda: gate.calls_waiting)
        statement = log.database.cursor().execute("SELECT rollout_id FROM rollouts")
        log.write(*second)
        assert len(log.rows("FROM rollouts")) == 2, "readers see what comes meanwhile"
        gate.open()
        finish(log.database)
        assert statement.fetchall() == [("a/0-rollout",)]
        assert "view (deleted)" in open_files(tmp_path)
        statement.close()
        assert open_files(tmp_path) == ["plain", "plain.lock", "plain.shown", "view", "view.lock", "view.shown"]
        with pytest.raises(duckdb.PermissionException):
            log.rows(f"FROM read_text('{tmp_path}/view.shown')")
        with pytest.raises(duckdb.InvalidInputException, match="locked"):
            log.rows("SET memory_limit = '1GB'")
        log.write(*third)
        plain.write(*second)
        plain.write(*third)
        assert everything(log) == everything(plain)
        assert not [name for name in names(tmp_path) if ".next" in name]
    with open_log_file(tmp_path / "view") as again:
        assert len(again.rows("FROM rollouts")) == 3


@pytest.mark.usefixtures("any_gap_counts")
def test_a_run_that_is_deleted_meanwhile_is_not_in_the_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = CallGate(monkeypatch, Compaction, "_follow")
    with open_log_file(tmp_path / "view", [*records_of("a"), *records_of("b")]) as log:
        log.database.compact_if_due(ROOM)
        eventually(lambda: gate.calls_waiting)
        gate.open()
        log.write(deletion(log, "a"))
        before = everything(log)
        compact(log)
        assert everything(log) == before
        assert log.rows("SELECT run_id FROM rollouts") == [("b",)]


@pytest.mark.usefixtures("any_gap_counts")
def test_a_disk_without_room_or_that_refuses_keeps_the_file_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(new: Path, path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    gate = CallGate(monkeypatch, Compaction, "_follow")
    with open_log_file(tmp_path / "view", records_of("a")) as log:
        database, inode = log.database, (tmp_path / "view").stat().st_ino
        database.compact_if_due(database.path.stat().st_size - 1)
        assert not database.is_compacting, "a copy would not fit"
        database.compact_if_due(ROOM)
        eventually(lambda: gate.calls_waiting)
        gate.open()
        database.compact_if_due(0)
        finish(database, 0)
        with monkeypatch.context() as patch:
            patch.setattr(database_module, "put_in_place", full)
            database.compact_if_due(ROOM)
            finish(database)
        assert "could not be written anew, and stays as it is: [Errno 28]" in caplog.text
        database.compact_if_due(ROOM)
        assert not database.is_compacting, "it is not tried again at once"
        log.write(*records_of("b"))
        assert len(log.rows("FROM rollouts")) == 2
        assert (tmp_path / "view").stat().st_ino == inode
        assert not [name for name in names(tmp_path) if ".next" in name]


@pytest.mark.usefixtures("any_gap_counts")
def test_rows_that_come_too_quickly_to_follow_keep_the_file_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(compaction_module, "FOLLOW_S_MIN", 0.0)
    monkeypatch.setattr(compaction_module, "FOLLOW_FACTOR", 0.0)
    gate = CallGate(monkeypatch, Compaction, "_follow")
    with open_log_file(tmp_path / "view", records_of("a")) as log:
        log.database.compact_if_due(ROOM)
        eventually(lambda: gate.calls_waiting)
        log.write(*records_of("b"))
        gate.open()
        finish(log.database)
        assert "stays as it is: rows come quicker than a copy can follow them" in caplog.text
        assert len(log.rows("FROM rollouts")) == 2
        assert not [name for name in names(tmp_path) if ".next" in name]


DYING = """
import os, sys
from pathlib import Path
from lightstream.store_views.materialiser import compaction, database
from tests.store_views.log_file import open_log_file
from tests.store_views.test_deletions import records_of
database.COMPACT_BYTES_MIN = 0
moment = sys.argv[2]
def dying(module, name, after=False):
    whole = getattr(module, name)
    def die(*arguments, **options):
        if after:
            whole(*arguments, **options)
        os._exit(9)
    setattr(module, name, die)
with open_log_file(Path(sys.argv[1]), records_of("a")) as log:
    log.database._checkpoint()
    log.write(*records_of("b"))
    {"copying": lambda: dying(compaction.Compaction, "_go_on"),
     "copied": lambda: dying(compaction, "lock_down"),
     "taken": lambda: dying(database, "put_in_place"),
     "in place": lambda: dying(database, "put_in_place", after=True),
     "over": lambda: dying(database.logger, "info")}[moment]()
    while True:
        log.database.compact_if_due(10**12)
"""


@pytest.mark.parametrize("moment", ["copying", "copied", "taken", "in place", "over"])
def test_a_crash_at_any_moment_leaves_one_whole_file(tmp_path: Path, moment: str) -> None:
    path = tmp_path / "view"
    done = subprocess.run([sys.executable, "-c", DYING, str(path), moment], check=False, timeout=120)
    assert done.returncode == 9
    with open_log_file(path) as log, open_log_file(tmp_path / "plain", records_of("a")) as plain:
        has_both = len(log.rows("FROM rollouts")) == 2
        assert has_both == (moment in ("in place", "over")), "the old one is of the last checkpoint"
        if not has_both:
            log.write(*records_of("b"))
        plain.write(*records_of("b"))
        assert everything(log) == everything(plain)
        assert names(tmp_path) == sorted(
            f"{name}{end}" for name in ("view", "plain") for end in ("", ".lock", ".shown")
        )


def test_a_view_that_is_closed_meanwhile_leaves_no_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "COMPACT_BYTES_MIN", 0)
    with open_log_file(tmp_path / "view", records_of("a")) as log:
        log.database.compact_if_due(ROOM)
        assert log.database.is_compacting
    assert names(tmp_path) == ["view", "view.lock", "view.shown"]
