"""Statements that cannot be ended end the process, which comes back and refuses them."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest

from benchmarks.hostile_statements import LARGE_TEXT, ONE_CALL
from lightstream.runtime.clock import ManualClock
from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.processes import ProcessUnit, Supervisor
from lightstream.runtime.services import discover
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import QueryError, SettingsError
from lightstream.schemas.topics import SPANS
from lightstream.store_views.client import ViewClient
from lightstream.store_views.server import run
from lightstream.store_views.server.statement import QueryLimits, Statement, run_query
from lightstream.store_views.server.watchdog import ALSO_IGNORED_S, Watchdog, refused_path
from tests.store_views.log_file import LogFile
from tests.stream_processors.assembly.build import proxy_span
from tests.support.waiting import eventually


def view_unit(settings: Settings, *arguments: str, name: str = "view") -> ProcessUnit:
    return ProcessUnit(name, [sys.executable, "-m", "lightstream.cli", "view", *arguments], settings)


def test_a_statement_that_ignores_its_limit_ends_the_view_which_comes_back(settings: Settings) -> None:
    publisher, supervisor, client = KafkaPublisher(settings), Supervisor(), ViewClient(settings, patience_s=120)
    written = publisher.publish(SPANS, "r1", proxy_span(1)).result(300)
    unit = view_unit(settings)
    try:
        supervisor.start([unit])
        assert client.query("SELECT count(*) FROM spans", [written]).scalar() == 1
        before = unit.pid
        # Its client asks again where there was no answer, and is told.
        with pytest.raises(QueryError, match=r"has ended the view.*refused for another \d+ s.*--name bi"):
            client.query(ONE_CALL, timeout_s=5)  # enough to begin: until then it would heed the limit
        assert unit.pid != before
        assert client.query("SELECT count(*) FROM spans", [written]).scalar() == 1
        log = unit.log_file.read_text("utf-8")
        assert "the view ends, to be started again: it does not stop" in log
        assert ONE_CALL in log
    finally:
        supervisor.stop()
        publisher.close()
        client.close()


def test_a_view_of_its_own_may_be_ended_for_its_memory_and_leaves_the_other_alone(settings: Settings) -> None:
    settings = settings.model_copy(update={"view_process_bytes_max": 1 << 30, "view_memory_bytes_max": 256 << 20})
    supervisor = Supervisor()
    main, bi = view_unit(settings), view_unit(settings, "--name", "bi", name="view-bi")
    training, people = ViewClient(settings), ViewClient(settings, patience_s=120, name="bi")
    try:
        supervisor.start([main, bi])
        before = main.pid, bi.pid
        with pytest.raises(QueryError, match="has ended the view"):
            people.query(LARGE_TEXT, timeout_s=600)
        assert "1,024 are allowed. The statement was: SELECT sum" in bi.log_file.read_text("utf-8")
        assert people.query("SELECT 1").scalar() == 1
        assert training.query("SELECT 1").scalar() == 1
        assert main.pid == before[0]
        assert bi.pid != before[1]
        assert discover(settings, "view").address != discover(settings, "view-bi").address
        assert discover(settings, "flight-sql").address != discover(settings, "flight-sql-bi").address
    finally:
        supervisor.stop()
        training.close()
        people.close()


@pytest.mark.parametrize("name", ["../x", "A", "x" * 33, "lightstream"])
def test_a_name_that_is_none_is_refused(name: str, settings: Settings) -> None:
    with pytest.raises(SettingsError, match="a view's name is"):
        run(settings, name=name)


def test_what_ended_the_process_is_refused_for_ten_minutes(tmp_path: Path) -> None:
    clock, ended = ManualClock(), threading.Event()
    path = tmp_path / "view.duckdb"

    def watchdog() -> Watchdog:
        return Watchdog(path, clock=clock, end=ended.set, memory_bytes=lambda: 0)

    first, culprit = watchdog(), Statement("a", "SELECT  deaf($x)")
    with first.watched(culprit, {"x": 1}):
        first.on_ignored(culprit)
    assert ended.is_set()
    again = watchdog()
    with pytest.raises(QueryError, match="another 600 s"), again.watched(Statement("b", "SELECT deaf($x)"), {"x": 1}):
        pass
    with again.watched(Statement("c", "SELECT deaf($x)"), {"x": 2}):
        pass
    clock.advance(601.0)
    with again.watched(Statement("d", "SELECT deaf($x)"), {"x": 1}), watchdog().watched(culprit, {"x": 1}):
        pass
    refused_path(path).write_text("[no file of ours")
    with watchdog().watched(culprit, {"x": 1}):
        pass


def test_another_constant_is_the_same_statement(tmp_path: Path) -> None:
    ended = threading.Event()
    watchdog = Watchdog(tmp_path / "view.duckdb", end=ended.set, memory_bytes=lambda: 0, clock=ManualClock())
    culprit = Statement("a", "SELECT deaf('x', 10), $1 FROM t", "others")
    with watchdog.watched(culprit, [1]):
        watchdog.on_ignored(culprit)
    for number, same in enumerate(
        [
            "SELECT deaf('y', 11), $1 FROM t",
            "select deaf('', 1e9) , $1  FROM t -- again",
            "SELECT deaf($$z$$, 10.5), $1 FROM t",
        ]
    ):
        with pytest.raises(QueryError, match="is refused"), watchdog.watched(Statement("b", same, "others"), [number]):
            pass
    with watchdog.watched(Statement("c", "SELECT meek('x', 10), $1 FROM t", "others"), [1]):
        pass
    with watchdog.watched(Statement("d", "SELECT deaf('y', 11), $1 FROM t", "stores"), [1]):
        pass


def test_memory_is_blamed_on_others_before_training(tmp_path: Path) -> None:
    ended, used = threading.Event(), [0]
    watchdog = Watchdog(
        tmp_path / "view.duckdb", memory_bytes_max=10, end=ended.set, memory_bytes=lambda: used[0], clock=ManualClock()
    )
    stores, person = Statement("a", "SELECT 1", "stores"), Statement("b", "SELECT 2", "others")
    with watchdog.watched(stores, None), watchdog.watched(person, None):
        used[0] = 11
        assert ended.wait(300)
        used[0] = 0
    with watchdog.watched(stores, None):
        pass
    with pytest.raises(QueryError, match="is refused"), watchdog.watched(person, None):
        pass


def test_memory_is_blamed_on_who_was_there_while_it_grew(tmp_path: Path) -> None:
    ended, used = threading.Event(), [0]
    watchdog = Watchdog(
        tmp_path / "view.duckdb", memory_bytes_max=10, end=ended.set, memory_bytes=lambda: used[0], clock=ManualClock()
    )
    hungry, page = Statement("a", "SELECT 1", "others"), Statement("b", "SELECT 2", "dashboard")
    with watchdog.watched(hungry, None):
        used[0] = 9
        with watchdog.watched(page, None):
            used[0] = 11
            assert ended.wait(300)
            used[0] = 0
    with watchdog.watched(page, None):
        pass
    with pytest.raises(QueryError, match="is refused"), watchdog.watched(hungry, None):
        pass


def test_a_statement_that_gets_no_processor_ignores_nothing(log: LogFile) -> None:
    looks, had_s, ended = [0], [0.0], threading.Event()

    def processor_s() -> float:
        looks[0] += 1
        return had_s[0]

    starved = Statement("a", "SELECT 1", on_ignored=lambda _: ended.set(), ignored_s=0.0, processor_s=processor_s)
    with starved.limited(log.database.cursor(), 0.0):
        eventually(lambda: looks[0] > 10, what="ten looks at it")
        assert not ended.is_set()
        had_s[0] = 0.1
        assert ended.wait(300)


def test_the_time_in_which_a_statement_is_checked_is_not_held_against_it(log: LogFile) -> None:
    ended = threading.Event()
    statement = Statement("a", "", on_ignored=lambda _: ended.set(), ignored_s=0.0)
    statement.cancel()
    long = f"SELECT [{','.join('1' * 20_000)}] FROM read_text('x')"  # noqa: S608 - of this test
    with pytest.raises(QueryError, match="the table function 'read_text' is not allowed"):
        run_query(log.database.cursor(), long, QueryLimits(), statement=statement)
    assert not ended.is_set()


def test_what_does_not_stop_either_is_refused_too(tmp_path: Path, log: LogFile) -> None:
    ended = threading.Event()
    watchdog = Watchdog(tmp_path / "other.duckdb", clock=ManualClock(), end=ended.set, memory_bytes=lambda: 0)
    first, deaf, quick = (
        Statement(name, f"SELECT '{name}'", processor_s=time.monotonic) for name in ("first", "deaf", "quick")
    )
    with watchdog.watched(first, None), watchdog.watched(deaf, None), watchdog.watched(quick, None):
        with deaf.limited(log.database.cursor(), 0.0), quick.limited(log.database.cursor(), 600.0):
            eventually(lambda: deaf.ignored_for_s > ALSO_IGNORED_S, what="a second")
            assert quick.ignored_for_s == 0.0
            watchdog.on_ignored(first)
        assert deaf.ignored_for_s == 0.0
    assert ended.is_set()
    for refused in (first, deaf):
        with pytest.raises(QueryError, match="is refused"), watchdog.watched(refused, None):
            pass
    with watchdog.watched(quick, None):
        pass
