"""The tables of one file, and how rows come into them: in transactions that carry the offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import duckdb
import pyarrow as pa

from ..tables import KEPT_TABLES, RAW_TABLES
from ..tables.kept import DELETIONS_PENDING, UNREAD_RECORDS
from .deletions import delete_what_is_due
from .planned import PlannedSql
from .positions import Place
from .summaries import Summaries

TABLES = (*(table.ddl for table in RAW_TABLES), *(table.ddl for table in KEPT_TABLES))
"""Statements that make the tables of records, and those that are kept beside them."""

OWN_TABLES = (
    "CREATE TABLE IF NOT EXISTS origin (name VARCHAR, value VARCHAR)",
    "CREATE TABLE IF NOT EXISTS offsets (topic VARCHAR, partition INTEGER, next_offset BIGINT)",
)
"""What the content was made from, and how far."""

COMPACT_BYTES = "compact bytes"
"""Name in ``origin``: size of the file when it was last written without gaps, less the share of rows that have left."""

_NOTE_DELETIONS = f"INSERT INTO {DELETIONS_PENDING.name} SELECT log_offset FROM incoming_deletions_raw"  # noqa: S608  # our name
_HAS_DELETIONS = f"SELECT EXISTS (FROM {DELETIONS_PENDING.name})"
_DELETE_UNREAD = f"DELETE FROM {UNREAD_RECORDS.name} WHERE list_contains(?, rowid)"  # noqa: S608  # our name
_ROWS = "SELECT sum(estimated_size)::BIGINT FROM duckdb_tables() WHERE database_name = current_database()"
_SET_COMPACT_BYTES = f"UPDATE origin SET value = ? WHERE name = '{COMPACT_BYTES}'"  # noqa: S608  # our name


class Content:
    """Tables that are there, on a connection.

    Args:
        connection: to the file, as what unqualified names mean; closed by whoever opened it.
        summaries: where they stand, if not at the beginning.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, summaries: Summaries | None = None) -> None:
        self.connection = connection
        self.summaries = summaries or Summaries()
        self._planned = PlannedSql(connection)
        self._may_delete = bool(self._planned.execute(_HAS_DELETIONS)[0][0])
        rows = connection.execute(f"SELECT value FROM origin WHERE name = '{COMPACT_BYTES}'").fetchall()  # noqa: S608
        self.compact_bytes = int(rows[0][0]) if rows else 0
        """Size that the file would have without gaps, as far as known; rows that came since are not counted."""

    def offsets(self) -> dict[Place, int]:
        """Place -> first offset that is not in the tables."""
        return offsets_of(self.connection)

    def append(
        self, tables: Mapping[str, pa.Table], next_offsets: Mapping[Place, int], now_read: Sequence[int] = ()
    ) -> int:
        """Add rows and replace the offsets, all or nothing.

        Args:
            tables: rows by table, with its columns in their order.
            next_offsets: place -> next offset, of all places.
            now_read: rows of ``unread_records`` that go.

        Returns:
            How many rows have left, because they were deleted.

        Raises:
            duckdb.Error: the disk is full, say; nothing was added.
        """
        return self._in_transaction(lambda: self._append(tables, next_offsets, now_read))

    def _append(
        self, tables: Mapping[str, pa.Table], next_offsets: Mapping[Place, int], now_read: Sequence[int]
    ) -> int:
        connection, planned, deleted_rows = self.connection, self._planned, 0
        for name, rows in tables.items():
            planned.execute(f"INSERT INTO {name} FROM incoming_{name}", **{f"incoming_{name}": rows})
        if now_read:
            connection.execute(_DELETE_UNREAD, [list(now_read)])
        self.summaries.add(planned, tables)
        if (deletions := tables.get("deletions_raw")) is not None:
            planned.execute(_NOTE_DELETIONS, incoming_deletions_raw=deletions)
            self._may_delete = True
        if self._may_delete:
            deleted_rows = self._counted(lambda: delete_what_is_due(connection, next_offsets))
            self._may_delete = bool(planned.execute(_HAS_DELETIONS)[0][0])
        planned.execute("DELETE FROM offsets")
        planned.execute("INSERT INTO offsets FROM incoming_offsets", incoming_offsets=_offset_rows(next_offsets))
        return deleted_rows

    def remove(self, delete: Callable[[duckdb.DuckDBPyConnection], int]) -> int:
        """Have rows leave, all or none.

        Args:
            delete: deletes rows, and returns how many.

        Returns:
            How many have left.

        Raises:
            duckdb.Error: the disk is full, say; nothing has changed.
        """
        return self._in_transaction(lambda: self._counted(lambda: delete(self.connection)))

    def replace_rows(self, name: str, rows: pa.Table) -> None:
        """Put these rows in place of all that a table has.

        Raises:
            duckdb.Error: the disk is full, say; the table is unchanged.
        """

        def replace() -> int:
            self._planned.execute(f"DELETE FROM {name}")  # noqa: S608  # our name
            self._planned.execute(f"INSERT INTO {name} FROM incoming_{name}", **{f"incoming_{name}": rows})
            return 0

        self._in_transaction(replace)

    def _counted(self, delete: Callable[[], int]) -> int:
        """Note what share of the file's rows has left."""
        ((before,),) = self.connection.execute(_ROWS).fetchall()
        if deleted_rows := delete():
            self.compact_bytes = int(self.compact_bytes * max(0.0, 1.0 - deleted_rows / max(before or 0, deleted_rows)))
            self.connection.execute(_SET_COMPACT_BYTES, [str(self.compact_bytes)])
        return deleted_rows

    def _in_transaction(self, work: Callable[[], int]) -> int:
        compact_bytes = self.compact_bytes
        self.connection.execute("BEGIN TRANSACTION")
        try:
            result = work()
            self.connection.execute("COMMIT")
        except BaseException:
            with suppress(duckdb.Error):  # the connection may be beyond a rollback; the first error says why
                self.connection.execute("ROLLBACK")
            self._planned.forget()  # what was registered in the transaction went with it
            self._may_delete, self.compact_bytes = True, compact_bytes
            raise
        return result


def offsets_of(connection: duckdb.DuckDBPyConnection) -> dict[Place, int]:
    """Place -> first offset that is not in the tables that this connection sees."""
    rows = connection.execute("SELECT topic, partition, next_offset FROM offsets").fetchall()
    return {(topic, partition): offset for topic, partition, offset in rows}


def _offset_rows(next_offsets: Mapping[Place, int]) -> pa.Table:
    return pa.table(
        {
            "topic": pa.array([topic for topic, _ in next_offsets], pa.string()),
            "partition": pa.array([partition for _, partition in next_offsets], pa.int64()),
            "next_offset": pa.array(next_offsets.values(), pa.int64()),
        }
    )
