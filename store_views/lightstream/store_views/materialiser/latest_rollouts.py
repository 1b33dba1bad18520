"""Keeps the table of current states in step with the states that are added."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any, TypeAlias

import duckdb
import pyarrow as pa

from lightstream.schemas.records import RolloutState, RolloutStatus

from ..tables import LATEST_COLUMNS, tables_of

__all__ = ["STATES_TABLE", "latest_of", "replace_latest"]

(_STATES,) = tables_of(RolloutState)
STATES_TABLE = _STATES.name

_NAMES = [column.name for column in LATEST_COLUMNS]
_KNOWN = """
SELECT latest.rowid, latest.rollout_id, latest.source_offset, latest.log_offset, latest.log_partition
FROM rollouts_latest AS latest
JOIN incoming USING (rollout_id, enqueued_unix_nano)
"""
_DELETE = "DELETE FROM rollouts_latest WHERE rowid IN (SELECT unnest(?))"
_INSERT = "INSERT INTO rollouts_latest SELECT *, len(attempts) FROM incoming"

Age: TypeAlias = tuple[int, int, int]
"""Source offset, log offset, partition. The life cycle's own rule: the state that reflects the later event is the later
one, so a state that is logged again, or by a worker that was replaced, takes nothing back."""


_UNKNOWN = RolloutStatus.UNKNOWN.value


def latest_of(rows: pa.Table) -> dict[str, tuple[Age, int]]:
    """Rollout id -> age and index of its latest among these rows of ``rollout_states``.

    Answers about rollouts that do not exist are not states.
    """
    names = ("rollout_id", "status", "source_offset", "log_offset", "log_partition")
    columns: list[list[Any]] = [rows.column(name).to_pylist() for name in names]
    found: dict[str, tuple[Age, int]] = {}
    for index, (rollout_id, status, *places) in enumerate(zip(*columns, strict=True)):
        if status == _UNKNOWN:
            continue
        age: Age = (places[0], places[1], places[2])
        known = found.get(rollout_id)
        if known is None or known[0] < age:
            found[rollout_id] = age, index
    return found


def replace_latest(connection: duckdb.DuckDBPyConnection, rows: pa.Table) -> None:
    """Put the latest of these states in the place of older ones. Inside the caller's transaction.

    The table has no index: with one, each replacement would cost more the more rollouts there are. What is looked for
    lies among rollouts that were enqueued at the same time, and since rows are in about that order, the smallest and
    largest values that DuckDB keeps of each group of rows leave few of them to read.

    Args:
        rows: rows of ``rollout_states``. A rollout's ``enqueued_unix_nano`` never changes.

    Raises:
        duckdb.Error: the disk is full, say; the caller rolls back.
    """
    latest = latest_of(rows)
    if not latest:
        return
    states = rows.select(_NAMES).take([index for _, index in latest.values()])
    with _registered(connection, states):
        replaced, outdated = _compare(latest, connection.execute(_KNOWN).fetchall())
        if replaced:
            connection.execute(_DELETE, [replaced])
        if not outdated:
            connection.execute(_INSERT)
    if outdated:
        newer = states.filter(pa.array([rollout_id not in outdated for rollout_id in latest], pa.bool_()))
        with _registered(connection, newer):
            connection.execute(_INSERT)


@contextmanager
def _registered(connection: duckdb.DuckDBPyConnection, rows: pa.Table) -> Generator[None, None, None]:
    """As ``incoming``. Registering costs as much as a small statement, so each table of rows is registered once."""
    connection.register("incoming", rows)
    yield
    connection.unregister("incoming")


def _compare(
    latest: dict[str, tuple[Age, int]], kept: Iterable[tuple[int, str, int, int, int]]
) -> tuple[list[int], set[str]]:
    """Of the rows that are there, those to be replaced; and the rollouts of which the later state is there already."""
    replaced: list[int] = []
    outdated: set[str] = set()
    for row_id, rollout_id, source_offset, log_offset, log_partition in kept:
        if (source_offset, log_offset, log_partition) < latest[rollout_id][0]:
            replaced.append(row_id)
        else:
            outdated.add(rollout_id)
    return replaced, outdated
