"""Writes the view's file once more without its free space, while it is read and written.

A thread copies one snapshot of the tables to a file beside it, and then what came since, in small steps, through the
same code that rows come in by. The writer takes over the last step and puts the file in the place of the old one: by a
rename, so a crash at any moment leaves one of two whole files, each with the offsets of its rows.
"""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import duckdb
import pyarrow as pa

from lightstream.runtime.priority import run_behind

from ..sql_literal import sql_literal
from ..tables import KEPT_TABLES
from ..tables.kept import PRICES, UNREAD_RECORDS
from ..views import make_views
from .content import COMPACT_BYTES, OWN_TABLES, TABLES, Content, offsets_of
from .leaving import TOPIC_OF
from .positions import Place
from .summaries import Summaries
from .view_file import WORKERS_NICE, lock_down, open_file

COPY_MEMORY_BYTES_MAX = 512 * 1024**2
"""For the copy's caches, beside those of the file that is read meanwhile."""
COPIED_ROWS = 20_480
IN_MEMORY_BYTES_MAX = 64 * 1024**2
"""As Arrow, of what came since: then a checkpoint takes it into the copy. Each leaves gaps."""
STEP_OFFSETS = 5_000
"""Of each partition, so many offsets follow in one step; a step is in memory as Arrow, some 20 MB of 5,000 spans."""

FOLLOW_S_MIN, FOLLOW_FACTOR = 120.0, 4.0
"""What came since is followed for so long, or so many times as long as the copy took: else rows come too quickly."""
_KEPT = [table.name for table in KEPT_TABLES]


class Compaction:
    """One copy, from its start until it is taken or given up.

    Args:
        path: of the new file, which does not exist.
        spill: folder for what of its queries does not fit in memory.
        cursor: opens a connection to the tables, for any thread.
        summaries: of the tables, which go on in the new file.
        memory_bytes_max: for the new file's caches and queries, once it is taken.
    """

    def __init__(
        self,
        path: Path,
        spill: Path,
        cursor: Callable[[], duckdb.DuckDBPyConnection],
        summaries: Summaries,
        memory_bytes_max: int,
    ) -> None:
        self.path = path
        self._cursor = cursor
        self._summaries = copy.copy(summaries)
        self._memory_bytes_max = memory_bytes_max
        self._connection = open_file(path, min(COPY_MEMORY_BYTES_MAX, memory_bytes_max), spill)
        self._given_up = False
        self._copied = run_behind(self._copy, WORKERS_NICE, "lightstream-view-compaction")

    @property
    def is_over(self) -> bool:
        """Whether the thread has done its part, or failed."""
        return self._copied.done()

    def take(self) -> Content:
        """Add the last rows, and return the new file's content; the file is not in its place yet.

        For the thread that writes, while it writes nothing, once :attr:`is_over`.

        Raises:
            duckdb.Error, OSError: the copy could not be made.
        """
        content = self._copied.result()
        while self._follow(content):
            pass
        with self._cursor() as cursor:  # follows from no topic
            content.replace_rows(PRICES.name, cursor.sql(f"FROM {PRICES.name}").to_arrow_table())
        return content

    def give_up(self) -> None:
        """Stop, and delete the file."""
        self._given_up = True
        while not self._copied.done():
            with suppress(duckdb.Error):
                self._connection.interrupt()
            with suppress(TimeoutError, duckdb.Error, OSError):
                self._copied.exception(timeout=0.05)
        self._connection.close()
        self.path.unlink(missing_ok=True)

    def _copy(self) -> Content:
        connection, began_s = self._connection, time.monotonic()
        connection.execute("SET threads = 1")
        with self._cursor() as source:
            ((threads,),) = source.execute("SELECT current_setting('threads')").fetchall()
            source.execute("BEGIN TRANSACTION READ ONLY")
            connection.execute("BEGIN TRANSACTION")
            for statement in (*OWN_TABLES, *TABLES):
                connection.execute(statement)
            for name in ("origin", "offsets", *TOPIC_OF, *_KEPT):
                self._go_on()
                connection.register("copied_rows", source.sql(f"FROM {name}").to_arrow_reader(COPIED_ROWS))
                connection.execute(f"INSERT INTO {name} FROM copied_rows")
                connection.unregister("copied_rows")
            make_views(connection)
            connection.execute("COMMIT")
            source.execute("COMMIT")
        connection.execute("CHECKPOINT")
        size = str(self.path.stat().st_size)
        connection.execute("DELETE FROM origin WHERE name = ?", [COMPACT_BYTES])
        connection.execute("INSERT INTO origin VALUES (?, ?)", [COMPACT_BYTES, size])
        content = Content(connection, self._summaries)
        in_memory_bytes, copied_s = 0, time.monotonic()
        give_up_s = copied_s + max(FOLLOW_S_MIN, FOLLOW_FACTOR * (copied_s - began_s))
        while added_bytes := self._follow(content):
            self._go_on()
            if time.monotonic() >= give_up_s:
                raise TimeoutError("rows come quicker than a copy can follow them")
            in_memory_bytes += added_bytes
            if in_memory_bytes >= IN_MEMORY_BYTES_MAX:
                connection.execute("CHECKPOINT")
                in_memory_bytes = 0
        connection.execute("CHECKPOINT")
        connection.execute(f"SET threads = {int(threads)}")
        connection.execute(f"SET memory_limit = '{self._memory_bytes_max}B'")
        lock_down(connection)
        return content

    def _follow(self, content: Content) -> int:
        """Add what came since, one step of it; returns its bytes as Arrow, or 0 where there is no more."""
        with self._cursor() as source:
            source.execute("BEGIN TRANSACTION READ ONLY")
            has, ends = content.offsets(), offsets_of(source)
            step = {place: min(end, has.get(place, end) + STEP_OFFSETS) for place, end in ends.items()}
            if step == has:
                return 0
            tables = _rows_between(source, has, step)
            source.execute("COMMIT")
        content.append(tables, step)
        return 1 + sum(rows.nbytes for rows in tables.values())

    def _go_on(self) -> None:
        if self._given_up:
            raise InterruptedError("the copy was given up")


def _rows_between(
    source: duckdb.DuckDBPyConnection, first: Mapping[Place, int], end: Mapping[Place, int]
) -> dict[str, pa.Table]:
    """Rows, by table, of records from these offsets on and below those."""
    found: dict[str, pa.Table] = {}
    ranges: dict[str, list[str]] = {}
    for (topic, partition), until in end.items():
        since = first.get((topic, partition), 0)
        if since < until:
            of_log = f"log_partition = {partition} AND log_offset >= {since} AND log_offset < {until}"
            ranges.setdefault(topic, []).append(f"({of_log})")
    which = {name: " OR ".join(ranges[topic]) for name, topic in TOPIC_OF.items() if topic in ranges}
    of_any = [f"topic = {sql_literal(topic)} AND ({' OR '.join(of_topic)})" for topic, of_topic in ranges.items()]
    which[UNREAD_RECORDS.name] = " OR ".join(of_any) or "false"
    for name, condition in which.items():
        rows = source.sql(f"FROM {name} WHERE {condition}").to_arrow_table()
        if len(rows):
            found[name] = rows
    return found


def put_in_place(new: Path, path: Path) -> None:
    """Put the new file in place of the old one, in one step that outlives the machine.

    Raises:
        OSError: it cannot be; the old one is there.
    """
    os.replace(new, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
