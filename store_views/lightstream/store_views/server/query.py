"""One statement that only reads, within limits."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import duckdb
import pyarrow as pa

from lightstream.schemas.errors import QueryError

from .gate import check_statement
from .statements import Statement

__all__ = ["Parameters", "QueryLimits", "QueryOutcome", "run_query", "run_reading"]

T = TypeVar("T")

NARROW_IT = "Narrow it (WHERE, LIMIT), or ask for more time with timeout_s."

Parameters: TypeAlias = list[Any] | dict[str, Any]
"""Values of a statement's ``?`` and ``$1``, in order, or of its ``$name``."""

HUGE_INTEGERS = ("HUGEINT", "UHUGEINT")

FETCH_ROWS = 2048
"""DuckDB's own vector size."""


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """Limits of one statement.

    Attributes:
        timeout_s: seconds until it is interrupted.
        timeout_s_max: the most seconds that a request may ask for in place of ``timeout_s``.
        rows_max, bytes_max: size of the answer (Arrow's bytes); what is beyond is cut off, and said so.
    """

    timeout_s: float = 30.0
    rows_max: int = 100_000
    bytes_max: int = 256 * 1024 * 1024
    timeout_s_max: float = 3600.0


@dataclass(frozen=True, slots=True)
class QueryOutcome:
    """The answer. ``types`` are DuckDB's names; ``truncated`` says that rows were cut off."""

    columns: list[str]
    types: list[str]
    table: pa.Table
    truncated: bool


def run_query(
    connection: duckdb.DuckDBPyConnection,
    sql: str,
    limits: QueryLimits,
    parameters: Parameters | None = None,
    statement: Statement | None = None,
) -> QueryOutcome:
    """Run one reading statement in a read-only transaction, on one snapshot of the data.

    Args:
        connection: a cursor of its own; it is closed here.
        parameters: values for the statement's placeholders; never parsed as SQL.
        statement: by which it is cancelled.

    Raises:
        QueryError: not one reading statement, wrong SQL or parameters, too slow, or cancelled. Nothing has changed.
    """

    def fetched(connection: duckdb.DuckDBPyConnection) -> QueryOutcome:
        return _fetch(connection.sql(sql, params=parameters), limits)

    with closing(connection):
        check_statement(sql)  # nothing interrupts this, and that is not held against the statement
        return run_reading(connection, fetched, limits.timeout_s, statement, if_slow=NARROW_IT)


def run_reading(
    connection: duckdb.DuckDBPyConnection,
    read: Callable[[duckdb.DuckDBPyConnection], T],
    timeout_s: float,
    statement: Statement | None = None,
    *,
    if_slow: str = "Ask again when the view has less to do.",
) -> T:
    """Run what reads, in one statement or several, in a read-only transaction: all of it on one snapshot of the data.

    Args:
        connection: a cursor of its own; it is closed here.
        read: gets the connection.
        timeout_s: seconds until whatever it runs is interrupted.
        statement: by which it is cancelled.
        if_slow: what the client is to do where the time is over.

    Raises:
        QueryError: DuckDB cannot run it, or it was too slow, or cancelled; and what ``read`` raises.
    """
    statement = statement or Statement()
    try:
        with statement.limited(connection, timeout_s) as stopped:
            try:
                connection.execute("BEGIN TRANSACTION READ ONLY")
                return read(connection)
            except (duckdb.Error, OSError, OverflowError, pa.ArrowInvalid) as error:
                if statement.is_cancelled:
                    raise QueryError("the statement was cancelled.") from error
                if stopped.is_set():
                    raise QueryError(
                        f"the statement took longer than {timeout_s:g} s and was stopped.",
                        next_step=if_slow,
                    ) from error
                raise QueryError(str(error).strip()) from error
            finally:
                with suppress(duckdb.Error):
                    connection.execute("ROLLBACK")
    finally:
        connection.close()


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
    for index, name in enumerate(types):
        if name in HUGE_INTEGERS:
            types[index], values = _usual_numbers(table.column(index))
            table = table.set_column(index, table.field(index).with_type(values.type), values)
    return QueryOutcome(columns, types, table, truncated)


def _usual_numbers(values: pa.ChunkedArray[Any]) -> tuple[str, pa.ChunkedArray[Any]]:
    """Numbers of 128 bits, which sums of integers are in DuckDB and hardly any client has a type for, and what they
    are now: BIGINT where all of them fit, else DOUBLE."""
    try:
        return "BIGINT", values.cast(pa.int64())
    except pa.ArrowInvalid:
        return "DOUBLE", values.cast(pa.float64())
