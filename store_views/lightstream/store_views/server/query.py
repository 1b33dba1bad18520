"""One statement that only reads, within limits."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from lightstream.schemas.errors import QueryError

__all__ = ["QueryLimits", "QueryOutcome", "run_query"]

READING_STATEMENTS = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
"""DESCRIBE, SHOW, SUMMARIZE, FROM, VALUES, TABLE and WITH are parsed as SELECT."""

FETCH_ROWS = 2048
"""DuckDB's own vector size."""


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """What one statement may take.

    Attributes:
        timeout_s: seconds until it is interrupted.
        rows_max, bytes_max: size of the answer (Arrow's bytes); what is beyond is cut off, and said so.
    """

    timeout_s: float = 30.0
    rows_max: int = 100_000
    bytes_max: int = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class QueryOutcome:
    """The answer. ``types`` are DuckDB's names; ``truncated`` says that rows were cut off."""

    columns: list[str]
    types: list[str]
    table: pa.Table
    truncated: bool


def run_query(connection: duckdb.DuckDBPyConnection, sql: str, limits: QueryLimits) -> QueryOutcome:
    """Run one reading statement in a read-only transaction, on one snapshot of the data.

    Args:
        connection: a cursor of its own; it is closed here.

    Raises:
        QueryError: not one reading statement, wrong SQL, or too slow. Nothing has changed.
    """
    try:
        _check(sql)
        with _time_limit(connection, limits.timeout_s) as expired:
            try:
                connection.execute("BEGIN TRANSACTION READ ONLY")
                return _fetch(connection.sql(sql), limits)
            except (duckdb.Error, OSError, pa.ArrowInvalid) as error:
                if expired.is_set():
                    raise QueryError(
                        f"the statement took longer than {limits.timeout_s:g} s and was stopped.",
                        next_step="Narrow it (WHERE, LIMIT), or ask for more time with timeout_s.",
                    ) from error
                raise QueryError(str(error).strip()) from error
            finally:
                with suppress(duckdb.Error):
                    connection.execute("ROLLBACK")
    finally:
        connection.close()


def _check(sql: str) -> None:
    """Refuse anything but one statement that reads."""
    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        raise QueryError(str(error).strip()) from error
    if len(statements) != 1:
        raise QueryError(f"exactly one statement is run at a time, not {len(statements)}.")
    if statements[0].type not in READING_STATEMENTS:
        raise QueryError(
            f"the view only reads; this is {statements[0].type.name}.",
            next_step="Use SELECT, WITH, FROM, DESCRIBE, SHOW, SUMMARIZE or EXPLAIN.",
        )


def _fetch(relation: duckdb.DuckDBPyRelation, limits: QueryLimits) -> QueryOutcome:
    columns, types = list(relation.columns), [str(name) for name in relation.types]
    reader: pa.RecordBatchReader = relation.to_arrow_reader(FETCH_ROWS)
    batches: list[pa.RecordBatch] = []
    rows_left, bytes_left, truncated = limits.rows_max, limits.bytes_max, False
    for batch in reader:
        if batch.num_rows > rows_left or batch.nbytes > bytes_left:
            fitting = min(rows_left, batch.num_rows * bytes_left // max(batch.nbytes, 1))
            batches.append(batch.slice(0, fitting))
            truncated = True
            break
        batches.append(batch)
        rows_left -= batch.num_rows
        bytes_left -= batch.nbytes
    table = pa.Table.from_batches(batches, reader.schema)
    reader.close()
    return QueryOutcome(columns, types, table, truncated)


@contextmanager
def _time_limit(connection: duckdb.DuckDBPyConnection, timeout_s: float) -> Generator[threading.Event, None, None]:
    expired = threading.Event()

    def stop() -> None:
        expired.set()
        connection.interrupt()

    timer = threading.Timer(timeout_s, stop)
    timer.daemon = True
    timer.start()
    try:
        yield expired
    finally:
        timer.cancel()
