"""The statements that run now: their ids, and how each is stopped before its time."""

from __future__ import annotations

import math
import re
import threading
import time
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager

import duckdb

from lightstream.schemas.errors import NotFoundError, QueryError

__all__ = ["Statement", "Statements", "new_query_id"]

INTERRUPT_INTERVAL_S = 0.05

SQL_SHOWN_CHARACTERS = 500

_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Statement:
    """One statement, from its arrival to its end. On any thread.

    Args:
        on_ignored: called once with this, on a thread of its own, when the statement has ignored being stopped for
            more than ``ignored_s`` seconds.
        processor_s: seconds of processor that the process has had.
    """

    def __init__(
        self,
        query_id: str = "",
        sql: str = "",
        lane: str = "",
        *,
        on_ignored: Callable[[Statement], None] | None = None,
        ignored_s: float = 2.0,
        processor_s: Callable[[], float] = time.process_time,
    ) -> None:
        self.query_id = query_id
        self.sql = sql
        self.lane = lane
        self.is_cancelled = False
        self.is_running = False
        self._arrived_s = time.monotonic()
        self._told_s = self._told_processor_s = math.inf
        self._on_ignored = on_ignored
        self._ignored_s = ignored_s
        self._processor_s = processor_s
        self._wake = threading.Event()
        self._ended = threading.Event()

    def as_json(self) -> dict[str, object]:
        """A row of ``GET /v1/queries``."""
        return {
            "query_id": self.query_id,
            "sql": self.sql[:SQL_SHOWN_CHARACTERS],
            "lane": self.lane,
            "seconds": round(time.monotonic() - self._arrived_s, 3),
            "state": "running" if self.is_running else "waiting",
        }

    @property
    def ignored_for_s(self) -> float:
        """For how many seconds it has run on since it was told to stop; 0 where it has ended, or was not told.

        Time in which the process itself got no processor does not count: on a machine that is overloaded or was
        suspended, or while a disk stalls, a statement that would stop cannot either.
        """
        if self._ended.is_set():
            return 0.0
        passed_s = min(time.monotonic() - self._told_s, self._processor_s() - self._told_processor_s)
        return max(0.0, passed_s)

    def cancel(self) -> None:
        """Stop it: at once, or when it would begin."""
        self.is_cancelled = True
        self._wake.set()

    @contextmanager
    def limited(self, connection: duckdb.DuckDBPyConnection, timeout_s: float) -> Generator[threading.Event]:
        """Interrupt what the block runs when its time is over or it was cancelled, again and again: DuckDB forgets an
        interrupt that comes before a statement. Gives an event that is set from then on."""
        stopped = threading.Event()
        watcher = threading.Thread(
            target=self._watch, args=(connection, timeout_s, stopped), daemon=True, name="lightstream-query-limit"
        )
        watcher.start()
        self.is_running = True
        try:
            yield stopped
        finally:
            self.is_running = False
            self._ended.set()
            self._wake.set()
            watcher.join()

    def _watch(self, connection: duckdb.DuckDBPyConnection, timeout_s: float, stopped: threading.Event) -> None:
        self._wake.wait(timeout_s)
        self._told_s, self._told_processor_s = time.monotonic(), self._processor_s()
        while not self._ended.is_set():
            stopped.set()
            connection.interrupt()
            if self._on_ignored is not None and self.ignored_for_s > self._ignored_s:
                self._on_ignored(self)
                self._on_ignored = None
            self._ended.wait(INTERRUPT_INTERVAL_S)


class Statements:
    """All that run or wait for their place, by id. On any thread."""

    def __init__(self) -> None:
        self._by_id: dict[str, Statement] = {}
        self._changing = threading.Lock()

    @contextmanager
    def listed(self, statement: Statement) -> Generator[None]:
        """List a statement while the block runs.

        Raises:
            QueryError: its id is that of another that runs, or is none.
        """
        if not _ID.fullmatch(statement.query_id):
            raise QueryError(
                f"'query_id' must be 1 to 64 letters, digits, '_', '-' and '.', not {statement.query_id!r:.100}."
            )
        with self._changing:
            if statement.query_id in self._by_id:
                raise QueryError(f"a statement with the query_id {statement.query_id} runs already.")
            self._by_id[statement.query_id] = statement
        try:
            yield
        finally:
            with self._changing:
                del self._by_id[statement.query_id]

    def all(self) -> list[Statement]:
        """In order of arrival."""
        with self._changing:
            return list(self._by_id.values())

    def cancel(self, query_id: str) -> None:
        """Stop a statement.

        Raises:
            NotFoundError: none of that id runs or waits.
        """
        with self._changing:
            statement = self._by_id.get(query_id)
        if statement is None:
            raise NotFoundError(f"no statement {query_id} runs.", next_step="GET /v1/queries lists those that run.")
        statement.cancel()


def new_query_id() -> str:
    """Return an id that no other statement has."""
    return uuid.uuid4().hex
