"""Keeps tables with the latest row of each thing in step with the rows that are added."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from .planned import PlannedSql

Row: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class LatestRows:
    """One table with a row per identity, the latest.

    It has no index: with one, each replacement would cost more the more rows there are. What is looked for lies among
    rows with the same ``near``, and since the table is in about that order, the smallest and largest values that DuckDB
    keeps of each group of rows leave few of them to read.

    Attributes:
        table: its name.
        identity: columns that say whose row it is.
        near: a column that is the same in all rows of an identity, and grows along the log.
        age: columns by which one row is later than another; of equally late ones the first stays.
        counted: columns of rows that go which the caller wants to know.
    """

    table: str
    identity: tuple[str, ...]
    near: str
    age: tuple[str, ...]
    counted: tuple[str, ...]

    def replace(self, planned: PlannedSql, rows: pa.Table) -> tuple[list[Row], list[int]]:
        """Put the latest of these rows in the place of older ones. Inside the caller's transaction.

        Args:
            rows: with all columns of the table.

        Returns:
            The counted columns of the removed rows, and the indices of the added ones among ``rows``.

        Raises:
            duckdb.Error: the disk is full, say; the caller rolls back.
        """
        latest = self._latest_of(rows)
        if not latest:
            return [], []
        sought = rows.select([*self.identity, self.near]).take([index for _, index in latest.values()])
        known = planned.execute(self._known, **{self._sought: sought})
        removed, replaced, outdated = self._compare(latest, known)
        if replaced:
            planned.execute(self._delete, replaced_rows=pa.table({"id": pa.array(replaced, pa.int64())}))
        added = [index for identity, (_, index) in latest.items() if identity not in outdated]
        if added:
            planned.execute(self._insert, **{self._incoming: rows.take(added)})
        return removed, added

    @property
    def _incoming(self) -> str:
        return f"incoming_{self.table}"

    @property
    def _sought(self) -> str:
        return f"sought_{self.table}"

    @property
    def _insert(self) -> str:
        return f"INSERT INTO {self.table} BY NAME FROM {self._incoming}"

    @property
    def _delete(self) -> str:
        return f"DELETE FROM {self.table} WHERE rowid IN (SELECT id FROM replaced_rows)"  # noqa: S608  # our name

    @property
    def _known(self) -> str:
        columns = ", ".join(f"latest.{name}" for name in ("rowid", *self.identity, *self.age, *self.counted))
        using = ", ".join((*self.identity, self.near))
        return f"SELECT {columns} FROM {self.table} AS latest JOIN {self._sought} USING ({using})"  # noqa: S608  # our names

    def _latest_of(self, rows: pa.Table) -> dict[Row, tuple[Row, int]]:
        """Identity -> age and index of its latest among these rows."""
        found: dict[Row, tuple[Row, int]] = {}
        width = len(self.identity)
        for index, row in enumerate(rows_of(rows, (*self.identity, *self.age))):
            identity, age = row[:width], row[width:]
            known = found.get(identity)
            if known is None or known[0] < age:
                found[identity] = age, index
        return found

    def _compare(
        self, latest: dict[Row, tuple[Row, int]], kept: Iterable[Row]
    ) -> tuple[list[Row], list[int], set[Row]]:
        """Of the rows that are there, those to be replaced; and identities of which one as late is there already."""
        removed: list[Row] = []
        replaced: list[int] = []
        outdated: set[Row] = set()
        age_at, counted_at = 1 + len(self.identity), 1 + len(self.identity) + len(self.age)
        for row in kept:
            identity = row[1:age_at]
            if row[age_at:counted_at] < latest[identity][0]:
                replaced.append(row[0])
                removed.append(row[counted_at:])
            else:
                outdated.add(identity)
        return removed, replaced, outdated


def rows_of(table: pa.Table, names: Iterable[str]) -> Iterable[Row]:
    """These columns, row by row."""
    columns: list[list[Any]] = [table.column(name).to_pylist() for name in names]
    return zip(*columns, strict=True)
