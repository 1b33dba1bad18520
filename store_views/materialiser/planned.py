"""SQL of the writer that DuckDB plans once: for a few rows, to plan a statement takes longer than to run it."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa


class PlannedSql:
    """Statements of one connection, each prepared at its first use, with rows of Python's as their tables.

    DuckDB plans a prepared statement again where what it was planned for has changed.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._given: dict[str, _Given] = {}
        self._prepared: dict[str, str] = {}

    def execute(self, sql: str, **tables: pa.Table) -> list[tuple[Any, ...]]:
        """Run one statement.

        Args:
            tables: what names in the statement mean, for this once. When one has other columns than before, all
                statements are prepared again.

        Returns:
            The answer's rows.

        Raises:
            duckdb.Error: the disk is full, say.
        """
        try:
            for name, rows in tables.items():
                self._give(name, rows)
            return self._connection.execute(f"EXECUTE {self._name_of(sql)}").fetchall()
        finally:
            for given in self._given.values():
                given.rows = None

    def _give(self, name: str, rows: pa.Table) -> None:
        given = self._given.get(name)
        if given is None or given.schema != rows.schema:
            if given is not None:
                self._prepared = {}
            given = self._given[name] = _Given(rows.schema)
            self._connection.register(name, given)
        given.rows = rows

    def _name_of(self, sql: str) -> str:
        if (name := self._prepared.get(sql)) is None:
            name = f"planned_{len(self._prepared)}"
            self._connection.execute(f"PREPARE {name} AS {sql}")
            self._prepared[sql] = name
        return name

    def forget(self) -> None:
        """Prepare each statement again at its next use, and name rows again: after a rollback, names are gone."""
        self._prepared = {}
        self._given = {}


class _Given:
    """Rows that DuckDB reads at each run, by Arrow's stream protocol."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.rows: pa.Table | None = None

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        rows = self.schema.empty_table() if self.rows is None else self.rows
        return rows.__arrow_c_stream__(requested_schema)  # type: ignore[no-untyped-call]  # untyped in the stubs
