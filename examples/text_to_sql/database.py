"""The database: a DuckDB file with three tables, and questions about it."""

from __future__ import annotations

import random
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, TypedDict

import duckdb

__all__ = [
    "AGGREGATES",
    "COLUMNS",
    "QueryError",
    "SqlTask",
    "ask",
    "query_of",
    "question_of",
    "tasks_on",
    "write_database",
]

AGGREGATES = {"highest": "max", "lowest": "min"}
TABLES = {
    "orders": ("price", "weight"),
    "staff": ("salary", "years"),
    "rooms": ("area", "height"),
}
COLUMNS = {column: table for table, columns in TABLES.items() for column in columns}
"""Column -> its table."""

ROWS = 50


class SqlTask(TypedDict):
    """A question, and the query whose answer is the right one."""

    database: str
    question: str
    query: str


class QueryError(Exception):
    """The database does not take the query."""


def question_of(word: str, column: str) -> str:
    """The question, as people ask it."""
    return f"{word} {column}?"


def query_of(aggregate: str, column: str, table: str) -> str:
    """The query, as the model is taught to write it."""
    return f"SELECT {aggregate}({column}) FROM {table}"  # noqa: S608  # names of our own


def write_database(file: Path, seed: int) -> Path:
    """Make the file, with random numbers in each column."""
    chance = random.Random(seed)
    file.parent.mkdir(parents=True, exist_ok=True)
    with duckdb.connect(file) as connection:
        for table, columns in TABLES.items():
            connection.execute(f"CREATE TABLE {table} ({', '.join(f'{column} DOUBLE' for column in columns)})")
            rows = [[chance.uniform(0, 100) for _ in columns] for _ in range(ROWS)]
            connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' for _ in columns)})", rows)  # noqa: S608  # names of our own
    return file


def tasks_on(database: Path) -> list[SqlTask]:
    """A question for each aggregate of each column."""
    return [
        SqlTask(
            database=str(database),
            question=question_of(word, column),
            query=query_of(aggregate, column, COLUMNS[column]),
        )
        for (word, aggregate), column in product(AGGREGATES.items(), COLUMNS)
    ]


def ask(database: str, query: str) -> Any:
    """The one value that a query returns. A model wrote it: it may read the file, and nothing else.

    Raises:
        QueryError: the database does not take it, or it returns no single value.
    """
    cursor = _open(database).cursor()
    try:
        cursor.execute(query)
        rows = cursor.fetchmany(2)
    except duckdb.Error as error:
        raise QueryError(str(error)) from error
    if len(rows) != 1 or len(rows[0]) != 1:
        raise QueryError("not one value")
    return rows[0][0]


@cache
def _open(database: str) -> duckdb.DuckDBPyConnection:
    """One connection per process; each question has a cursor of its own."""
    return duckdb.connect(
        database,
        read_only=True,
        config={"enable_external_access": "false", "lock_configuration": "true", "threads": "1"},
    )
