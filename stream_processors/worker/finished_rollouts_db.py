"""The finished-rollouts db: finished rollouts of one partition, in a SQLite file.

So memory holds only what is in progress, and a start reads only that. The file is a cache of the topic ``rollouts``:
without it, or with one of another log, everything is read again.
"""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from pathlib import Path

from lightstream.runtime.files import private_folder

logger = logging.getLogger(__name__)

VERSION = 2
"""Of the tables: a file of another one is emptied."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS finished (
    rollout_id TEXT PRIMARY KEY, source_offset INTEGER NOT NULL, state BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS progress (log_id TEXT NOT NULL, read_from INTEGER NOT NULL, reflected INTEGER NOT NULL);
"""

UPSERT = """
INSERT INTO finished VALUES (?, ?, ?)
ON CONFLICT (rollout_id) DO UPDATE SET source_offset = excluded.source_offset, state = excluded.state
WHERE excluded.source_offset > finished.source_offset
"""
"""States lie in the order they came, and only the ids are sorted: ids are random, and with the states among them each
one would be a page of 4 kB to write (300,000 states: 3.9 GB and 11 s of processor, now 0.3 GB and 1.7 s)."""

PRAGMAS = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
PRAGMA cache_size = -8192;
PRAGMA wal_autocheckpoint = 16384;
"""
"""A crash of the machine may lose the last transactions, never the file; the log has them. 8 MiB of cache. Up to 64 MiB
of pages wait next to the file, so that a page that changes often is written there once."""


class FinishedRolloutsDb:
    """A :class:`FinishedRollouts` that forgets nothing and holds in memory only rows that the file does not have yet.

    What is put goes to the file once its state is durable in the log (:meth:`written`), and with the next
    :meth:`flush`, so that the file never knows more than the log. Use it from one thread.

    Args:
        path: of the file; made if there is none.
        log_id: of the topic. A file of another one is emptied.
    """

    def __init__(self, path: Path, log_id: str) -> None:
        private_folder(path.parent)
        self._log_id = log_id
        try:
            self._database = _opened(path, log_id)
        except sqlite3.DatabaseError as error:
            logger.warning("%s is damaged (%s); it is rebuilt from the log.", path, error)
            for leftover in (path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-shm")):
                leftover.unlink(missing_ok=True)
            self._database = _opened(path, log_id)
        (self.read_from, self.reflected) = self._database.execute(
            "SELECT read_from, reflected FROM progress"
        ).fetchone()
        self._put: dict[str, tuple[int, bytes]] = {}
        self._durable: dict[str, tuple[int, bytes]] = {}
        self._open: dict[str, int] = {}
        self._end = self.read_from
        self._changed = False

    def get(self, rollout_id: str) -> bytes | None:
        if rollout_id in self._put:
            return self._put[rollout_id][1]
        if rollout_id in self._durable:
            return self._durable[rollout_id][1]
        row = self._database.execute("SELECT state FROM finished WHERE rollout_id = ?", (rollout_id,)).fetchone()
        return None if row is None else row[0]

    def put(self, rollout_id: str, source_offset: int, state: bytes) -> None:
        kept = self._put.get(rollout_id) or self._durable.get(rollout_id)
        if kept is None or kept[0] < source_offset:
            self._put[rollout_id] = (source_offset, state)

    def unwritten(self, rollout_id: str, source_offset: int) -> bytes | None:
        """The state that was put with this offset, while it is not :meth:`written`."""
        put = self._put.get(rollout_id)
        return put[1] if put is not None and put[0] == source_offset else None

    def written(self, rollout_id: str, offset: int, source_offset: int, *, terminal: bool) -> None:
        """A state of the rollout lies at ``offset`` of ``rollouts``, durably; call it in the order of offsets."""
        self._end = offset + 1
        self._changed = True
        self.reflected = max(self.reflected, source_offset)
        newest, state = self._put.get(rollout_id, (source_offset, None))
        if not terminal or newest > source_offset:  # what is kept is still on its way
            self._open[rollout_id] = offset
            return
        self._open.pop(rollout_id, None)
        if state is not None:
            self._durable[rollout_id] = (newest, state)
            del self._put[rollout_id]

    @property
    def unflushed(self) -> int:
        """Number of finished rollouts that the next :meth:`flush` brings to the file."""
        return len(self._durable)

    def flush(self) -> None:
        """Write the states that are :meth:`written` to the file. Blocking, some microseconds per state."""
        if not self._changed:
            return
        self.read_from = min(self._open.values(), default=self._end)
        with self._database:
            rows = sorted((rollout_id, *state) for rollout_id, state in self._durable.items())
            self._database.executemany(UPSERT, rows)
            self._database.execute("UPDATE progress SET read_from = ?, reflected = ?", (self.read_from, self.reflected))
        self._durable.clear()
        self._changed = False

    def close(self) -> None:
        """Flush, and let go of the file."""
        self.flush()
        self._database.close()


def _opened(path: Path, log_id: str) -> sqlite3.Connection:
    database = sqlite3.connect(path, check_same_thread=False)
    try:
        (found_version,) = database.execute("PRAGMA user_version").fetchone()
        if found_version != VERSION:
            database.executescript("DROP TABLE IF EXISTS finished; DROP TABLE IF EXISTS progress")
        database.executescript(PRAGMAS + SCHEMA + f"PRAGMA user_version = {VERSION};")
        with database, closing(database.execute("SELECT log_id FROM progress")) as found:
            if found.fetchall() != [(log_id,)]:
                database.execute("DELETE FROM finished")
                database.execute("DELETE FROM progress")
                database.execute("INSERT INTO progress VALUES (?, 0, -1)", (log_id,))
    except sqlite3.DatabaseError:
        database.close()
        raise
    return database
