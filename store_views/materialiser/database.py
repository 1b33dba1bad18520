"""The DuckDB file: opened once, appended to in transactions that carry the offsets, read through cursors."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import duckdb
import pyarrow as pa

from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.schemas.topics import topic_named

from ..tables.kept import UNREAD_RECORDS
from ..views import make_views, views_fingerprint
from .batch import LoggedBytes
from .compaction import Compaction, put_in_place
from .content import OWN_TABLES, TABLES, Content
from .positions import Place
from .view_file import CATALOG, FileLock, ShownFile, default_memory_bytes, lock_down, open_file, remove, spill_folder

logger = logging.getLogger(__name__)

CHECKPOINT_BYTES = 12_000_000
"""So much (as Arrow has it) goes to the file together: two seconds of 1,000 LLM spans of 640 tokens, 0.1 to 0.2 s of
processor, during which nothing is appended. What a crash takes from memory is read again from the log in less than a
second."""

CHECKPOINT_INTERVAL_S = 60.0
"""However little it is."""

COMPACT_GROWTH_MAX = 1.25
"""Growth of the file since it was without gaps, at which it is written anew. A view under load leaves half as much free
or fragmented as it adds, so of such growth a tenth of the file is gaps."""
COMPACT_BYTES_MIN = 2 * 1024**2
"""Beyond that: eight of DuckDB's blocks, in which a small file has what is not full."""
COMPACT_PAUSE_FACTOR = 3.0
"""Times as long as it took, nothing is written anew: that is a quarter of a core at most."""
COMPACT_RETRY_PAUSE_S = 600.0
NEXT = ".next"
"""Ends the name of a file that will be in this one's place, before its number."""

_NO_DATABASE = ("not a valid DuckDB database file", "Could not read enough bytes", "version number")
"""DuckDB says this of a file that is none, that was cut off, or that a newer DuckDB wrote."""

_UNREAD_OF = f"""
SELECT rowid, topic, log_partition, log_offset, logged_unix_nano, key, value, writer
FROM {UNREAD_RECORDS.name} WHERE list_contains(?, schema) ORDER BY topic, log_partition, log_offset LIMIT ?
"""  # noqa: S608  # our name


class ViewDatabase:
    """The view's file. One process, one instance; it is written from one thread, cursors are had from any.

    What is appended is in memory, for every cursor to see, until a checkpoint takes it into the file: a process that is
    killed leaves rows and offsets of the last checkpoint, and what came since is still in the log. :attr:`shown` says
    how far readers had seen it.

    Args:
        path: the file; made with its folder if missing.
        origin: what the content depends on (such as the ids of the topics). A file made from anything else, or with
            other tables, or that DuckDB cannot read, is set aside as ``<path>.old`` and a new one begun, since the log
            is the truth.
        memory_bytes_max: for DuckDB's caches and queries, ``None`` for a share of the machine's; what a query needs
            beyond goes to disk, to the folder ``<path>.tmp``. Batches on their way in take up to about 1 GB more.

    Raises:
        ServiceUnavailableError: another process owns the file, or the system does not let us open it.
    """

    def __init__(self, path: Path, origin: Mapping[str, str], *, memory_bytes_max: int | None = None) -> None:
        self.path = path
        self._memory_bytes_max = memory_bytes_max or default_memory_bytes()
        self._lock = FileLock(path)
        self._closing = threading.Lock()
        self._unwritten_bytes = 0
        self._checkpoint_s = time.monotonic()
        self._swapping = threading.Lock()
        self._compaction: Compaction | None = None
        self._compactions = 0
        self._compaction_began_s = 0.0
        self._next_compaction_s = 0.0
        self._shown_file = ShownFile(path)
        self.shown: dict[Place, int] = self._shown_file.read()
        """Place -> next offset, as readers may have seen it before this start: the file may know less."""
        try:
            self._content = Content(self._open({**origin, "tables": tables_fingerprint()}))
            self._next_offsets = self._content.offsets()
        except BaseException:
            self._shown_file.close()
            self._lock.release()
            raise

    def _open(self, origin: dict[str, str]) -> duckdb.DuckDBPyConnection:
        for leftover in (
            *self.path.parent.glob(f"{self.path.name}.tmp*"),
            *self.path.parent.glob(f"{self.path.name}{NEXT}*"),
        ):
            remove(leftover)  # what a killed process had spilled, or copied
        connection, stored = self._open_readable()
        if why := _why_not_ours(stored, origin):
            connection.close()
            self._set_aside(why)
            connection, stored = open_file(self.path, self._memory_bytes_max), {}
        connection.execute("BEGIN TRANSACTION")
        for statement in (*OWN_TABLES, *TABLES):
            connection.execute(statement)
        views = views_fingerprint()
        stored = stored or {}
        if stored.get("views") != views:
            make_views(connection)
        origin = {**stored, **origin, "views": views}
        connection.execute("DELETE FROM origin")
        connection.executemany("INSERT INTO origin VALUES (?, ?)", [[*pair] for pair in origin.items()])
        connection.execute("COMMIT")
        connection.execute("CHECKPOINT")
        lock_down(connection)
        return connection

    def _open_readable(self) -> tuple[duckdb.DuckDBPyConnection, dict[str, str] | None]:
        """The file and its origin, as :func:`_read_origin`; a new file where this one cannot be read."""
        try:
            return _opened(self.path, self._memory_bytes_max)
        except duckdb.Error as error:
            if not _is_unreadable(error):
                raise ServiceUnavailableError(
                    f"the view's file {self.path} cannot be opened: {error}.",
                    next_step="Look into it. The file may be deleted: it is made again from the log.",
                ) from error
            self._set_aside(f"cannot be read ({error})")
        return _opened(self.path, self._memory_bytes_max)

    def _set_aside(self, why: str) -> None:
        aside = self.path.with_name(self.path.name + ".old")
        logger.warning("the view %s %s; it is kept as %s, and rebuilt", self.path, why, aside.name)
        os.replace(self.path, aside)
        self.shown = {}

    def next_offsets(self) -> dict[Place, int]:
        """Place -> first offset that is not in the tables."""
        return dict(self._next_offsets)

    def unread(self) -> dict[str, int]:
        """Version of Lightstream -> how many records are kept that only it can read."""
        with self.cursor() as cursor:
            rows = cursor.execute(f"SELECT writer, count(*) FROM {UNREAD_RECORDS.name} GROUP BY writer").fetchall()  # noqa: S608  # our name
        return dict(rows)

    def unread_of(self, is_known: Callable[[str], bool], records_max: int) -> list[tuple[int, LoggedBytes]]:
        """The first kept records, in log order, of schemas that are known now; with the numbers of their rows."""
        with self.cursor() as cursor:
            found = cursor.execute(f"SELECT DISTINCT schema FROM {UNREAD_RECORDS.name}").fetchall()  # noqa: S608  # our name
            known = [schema for (schema,) in found if is_known(schema)]
            rows = cursor.execute(_UNREAD_OF, [known, records_max]).fetchall() if known else []
        return [(row[0], LoggedBytes(topic_named(row[1]), *row[2:])) for row in rows]

    def append(
        self, tables: Mapping[str, pa.Table], next_offsets: Mapping[Place, int], *, now_read: Sequence[int] = ()
    ) -> None:
        """Add rows and move the offsets, all or nothing: a crash at any moment leaves both agreeing.

        Args:
            now_read: rows of :meth:`unread_of` that go, since the tables have what they held.

        Raises:
            duckdb.Error: the disk is full, say; nothing was added.
        """
        reached = {**self._next_offsets, **next_offsets}
        self._shown_file.write(reached)  # before anyone can see it
        if self._content.append(tables, reached, now_read):
            self._give_up_compaction()  # its copy still has the rows that left
        self._next_offsets = reached
        # Offsets alone count as something, too.
        self._unwritten_bytes += 1 + sum(rows.nbytes for rows in tables.values())

    def replace_rows(self, name: str, rows: pa.Table) -> None:
        """Put these rows in place of all that a table has, which follows from no topic. For the thread that writes.

        Raises:
            duckdb.Error: the disk is full, say; the table is unchanged.
        """
        self._content.replace_rows(name, rows)
        self._unwritten_bytes += 1 + rows.nbytes

    def checkpoint_if_due(self) -> None:
        """Take appended rows into the file, if they are enough or have waited long enough. Reading goes on meanwhile.

        Raises:
            duckdb.Error: the disk is full, say. The file is as the last checkpoint left it.
        """
        waited_s = time.monotonic() - self._checkpoint_s
        if self._unwritten_bytes >= CHECKPOINT_BYTES or (self._unwritten_bytes and waited_s >= CHECKPOINT_INTERVAL_S):
            self._checkpoint()

    def _checkpoint(self) -> None:
        """Checkpoint; stays due where something in DuckDB is in its way."""
        try:
            self._content.connection.execute("CHECKPOINT")
        except (duckdb.TransactionException, duckdb.OutOfMemoryException) as error:
            logger.debug("no checkpoint now: %s", error)
            return
        self._unwritten_bytes = 0
        self._checkpoint_s = time.monotonic()

    def remove(self, delete: Callable[[duckdb.DuckDBPyConnection], int]) -> int:
        """Have rows leave, all or none; see :meth:`Content.remove`. For the thread that writes.

        Raises:
            duckdb.Error: the disk is full, say; nothing has changed.
        """
        if deleted_rows := self._content.remove(delete):
            self._give_up_compaction()  # its copy still has them
            self._unwritten_bytes += 1
        return deleted_rows

    def compact_if_due(self, free_bytes: int) -> None:
        """Begin to write the file again without gaps, or put the new one in its place. For the thread that writes.

        It is due once the file has grown by a quarter since it was last without gaps, or since rows have left it. What
        goes wrong is logged, and leaves the file as it is.

        Args:
            free_bytes: of the disk, that a copy may take.
        """
        if self._compaction is not None:
            if self._compaction.is_over:
                self._take_compaction(self._compaction)
            elif free_bytes <= 0:
                logger.info("the view's file is not written anew now: the disk is too full")
                self._give_up_compaction()
            return
        size = self.path.stat().st_size
        if size < COMPACT_GROWTH_MAX * self._content.compact_bytes + COMPACT_BYTES_MIN or free_bytes < size:
            return
        self._compaction_began_s = time.monotonic()
        if self._compaction_began_s < self._next_compaction_s:
            return
        self._compactions += 1
        try:
            self._compaction = Compaction(
                self.path.with_name(f"{self.path.name}{NEXT}{self._compactions}"),
                spill_folder(self.path, self._compactions),
                self.cursor,
                self._content.summaries,
                self._memory_bytes_max,
            )
        except (duckdb.Error, OSError) as error:
            self._postpone_compaction(error)

    @property
    def is_compacting(self) -> bool:
        """Whether the file is being written again."""
        return self._compaction is not None

    def _take_compaction(self, compaction: Compaction) -> None:
        before = self.path.stat().st_size
        try:
            new = compaction.take()
            put_in_place(compaction.path, self.path)
        except (duckdb.Error, OSError) as error:
            self._give_up_compaction()
            self._postpone_compaction(error)
            return
        with self._swapping:
            self._content = new  # statements that run go on with the old one, which their end closes
        self._compaction = None
        self._unwritten_bytes += 1  # the last rows are in memory yet
        took_s = time.monotonic() - self._compaction_began_s
        self._next_compaction_s = time.monotonic() + COMPACT_PAUSE_FACTOR * took_s
        size = self.path.stat().st_size
        logger.info("the view's file was written anew in %.1f s: %d bytes, it had %d", took_s, size, before)

    def _give_up_compaction(self) -> None:
        if self._compaction is not None:
            self._compaction.give_up()
            self._compaction = None

    def _postpone_compaction(self, error: Exception) -> None:
        self._next_compaction_s = time.monotonic() + COMPACT_RETRY_PAUSE_S
        logger.warning("the view's file could not be written anew, and stays as it is: %s", error)

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A connection of its own to the same data: sees committed rows, blocks nobody."""
        with self._swapping:
            cursor = self._content.connection.cursor()
        cursor.execute(f"USE {CATALOG}")
        return cursor

    def close(self) -> None:
        """Close the file and give the lock back. Safe to call twice."""
        with self._closing:
            self._give_up_compaction()
            if self._lock.is_held:
                with suppress(duckdb.Error):  # what is not in the file is still in the log
                    self._content.connection.execute("CHECKPOINT")
            self._content.connection.close()
            self._shown_file.close()
            self._lock.release()


def _opened(path: Path, memory_bytes_max: int) -> tuple[duckdb.DuckDBPyConnection, dict[str, str] | None]:
    connection = open_file(path, memory_bytes_max)
    try:
        return connection, _read_origin(connection)
    except BaseException:
        connection.close()
        raise


def _is_unreadable(error: duckdb.Error) -> bool:
    """Whether the content is at fault, not the disk, the memory or who may read it."""
    if isinstance(error, duckdb.IOException):
        return any(phrase in str(error) for phrase in _NO_DATABASE)
    return not isinstance(error, duckdb.OutOfMemoryException)


def _read_origin(connection: duckdb.DuckDBPyConnection) -> dict[str, str] | None:
    """Origin of the content; empty for a new file, ``None`` where something else has made it."""
    theirs = """
        SELECT table_name FROM duckdb_tables() WHERE database_name = current_database()
        UNION ALL SELECT view_name FROM duckdb_views() WHERE database_name = current_database() AND NOT internal
    """
    names = {name for (name,) in connection.execute(theirs).fetchall()}
    if "origin" not in names:
        return None if names else {}
    return dict(connection.execute("SELECT name, value FROM origin").fetchall())


def _why_not_ours(stored: Mapping[str, str] | None, origin: Mapping[str, str]) -> str:
    """Say why rows cannot be added to a file with this origin; empty where they can.

    A topic that is new since then has no rows there: it is added, not a difference.
    """
    if stored is None:
        return "was made by something else"
    differing = sorted(name for name, value in origin.items() if stored.get(name, value) != value)
    return f"was made from another {', '.join(differing)}" if stored and differing else ""


def tables_fingerprint() -> str:
    """The tables of the view's file, as 16 hex digits: files with other ones are of other versions."""
    return hashlib.sha256("\n".join(TABLES).encode()).hexdigest()[:16]
