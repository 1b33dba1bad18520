"""SQL that is planned once reads the rows that are given each time."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest

from lightstream.store_views.materialiser.planned import PlannedSql

INSERT = "INSERT INTO numbers BY NAME FROM incoming"


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE numbers (number BIGINT, name VARCHAR)")
        yield connection


def rows(connection: duckdb.DuckDBPyConnection) -> list[tuple[int, str]]:
    return connection.execute("FROM numbers ORDER BY ALL").fetchall()


def test_each_run_reads_what_it_is_given(connection: duckdb.DuckDBPyConnection) -> None:
    planned = PlannedSql(connection)
    for number in range(3):
        planned.execute(INSERT, incoming=pa.table({"number": [number], "name": [str(number)]}))
    in_pieces = pa.concat_tables([pa.table({"number": [n], "name": ["piece"]}) for n in (7, 8)])
    planned.execute(INSERT, incoming=in_pieces)
    assert rows(connection) == [(0, "0"), (1, "1"), (2, "2"), (7, "piece"), (8, "piece")]
    assert planned.execute("DELETE FROM numbers WHERE number < 7") == [(3,)]
    joined = "SELECT number FROM numbers JOIN incoming USING (number)"
    assert planned.execute(joined, incoming=in_pieces) == [(7,), (8,)]


def test_a_name_may_come_with_other_columns(connection: duckdb.DuckDBPyConnection) -> None:
    planned = PlannedSql(connection)
    planned.execute(INSERT, incoming=pa.table({"number": [1], "name": ["one"]}))
    planned.execute(INSERT, incoming=pa.table({"name": ["two"], "number": pa.array([2], pa.int16())}))
    assert rows(connection) == [(1, "one"), (2, "two")]


def test_after_a_rollback_it_is_planned_again(connection: duckdb.DuckDBPyConnection) -> None:
    planned = PlannedSql(connection)
    connection.execute("BEGIN")
    planned.execute(INSERT, incoming=pa.table({"number": [1], "name": ["gone"]}))
    connection.execute("ROLLBACK")
    planned.forget()
    planned.execute(INSERT, incoming=pa.table({"number": [2], "name": ["kept"]}))
    assert rows(connection) == [(2, "kept")]


def test_a_statement_that_fails_leaves_the_others(connection: duckdb.DuckDBPyConnection) -> None:
    planned = PlannedSql(connection)
    with pytest.raises(duckdb.ConversionException):
        planned.execute(INSERT, incoming=pa.table({"number": ["no number"], "name": ["?"]}))
    planned.execute(INSERT, incoming=pa.table({"number": [3], "name": ["three"]}))
    assert rows(connection) == [(3, "three")]
