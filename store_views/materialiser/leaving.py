"""Rows of rollouts leave the view: because their run was deleted, or because they are old."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import duckdb

from lightstream.schemas.topics import TOPICS

from ..tables import RAW_TABLES, tables_of
from ..tables.kept import (
    GROUPS_CHANGED,
    REASONS_SETTLED,
    ROLLOUTS_LATEST,
    RUN_CALLS,
    RUN_REWARDS,
    RUN_ROLLOUTS,
    RUN_TRAINED,
    TRAJECTORIES_LATEST,
)

TOPIC_OF = {table.name: topic.name for topic in TOPICS for record in topic.records for table in tables_of(record)}
"""Table -> topic whose records it has."""
BY_ROLLOUT = tuple(
    table.name for table in RAW_TABLES if any(column.name == "rollout_id" for column in table.all_columns)
)
"""Tables whose rows name their rollout."""
_LATEST = {ROLLOUTS_LATEST.name: "rollout_states", TRAJECTORIES_LATEST.name: "trajectories_raw"}

_SUMS_AGAIN = (
    f"""INSERT INTO {RUN_ROLLOUTS.name} BY NAME
    SELECT run_id, mode, status, count(*) AS rollouts, sum(attempt_count)::BIGINT AS attempts
    FROM {ROLLOUTS_LATEST.name} WHERE list_contains($runs, run_id) GROUP BY ALL""",  # noqa: S608  # our names
    f"""INSERT INTO {RUN_CALLS.name} BY NAME
    SELECT run_id, mode, 'triplet' AS fate, '' AS reason, sum(triplets)::BIGINT AS calls,
        sum(prompt_tokens)::BIGINT AS prompt_tokens, sum(response_tokens)::BIGINT AS response_tokens
    FROM {TRAJECTORIES_LATEST.name} WHERE list_contains($runs, run_id) GROUP BY ALL HAVING calls > 0
    UNION ALL BY NAME
    SELECT run_id, mode, 'dropped' AS fate, entry.key AS reason, sum(entry.value)::BIGINT AS calls,
        0 AS prompt_tokens, 0 AS response_tokens
    FROM (SELECT run_id, mode, unnest(map_entries(dropped)) AS entry FROM {TRAJECTORIES_LATEST.name}
        WHERE list_contains($runs, run_id))
    GROUP BY ALL""",  # noqa: S608  # our names
    f"""INSERT INTO {RUN_REWARDS.name} BY NAME
    SELECT run_id, mode, count(*) AS trajectories, count(*) FILTER (isfinite(reward)) AS rewarded,
        coalesce(sum(reward) FILTER (isfinite(reward)), 0) AS reward_sum
    FROM {TRAJECTORIES_LATEST.name} WHERE list_contains($runs, run_id) AND final GROUP BY ALL""",  # noqa: S608  # our names
    f"""INSERT INTO {RUN_TRAINED.name} BY NAME
    SELECT run_id, count(DISTINCT rollout_id) AS rollouts, sum(triplet_count)::BIGINT AS calls
    FROM consumed_raw WHERE list_contains($runs, run_id) AND triplet_count > 0 AND outcome = 'updated'
    GROUP BY ALL""",  # noqa: S608  # our names
)
"""What the sums of runs are, from the rows that remain."""


def everything(table: str) -> str:
    """SQL: any row of a table."""
    return "true"


def delete_rows(connection: duckdb.DuckDBPyConnection, table: str, which: str, *values: object) -> int:
    """Delete rows of one table; returns how many."""
    rows = connection.execute(f"DELETE FROM {table} WHERE {which}", list(values)).fetchall()  # noqa: S608  # our names
    return int(rows[0][0])


def delete_rollouts(
    connection: duckdb.DuckDBPyConnection,
    rollouts: Sequence[str],
    groups: Sequence[str],
    *,
    runs: Collection[str],
    which: Callable[[str], str] = everything,
) -> int:
    """Delete all rows of rollouts, and make the sums of their runs again. Inside the caller's transaction.

    Args:
        rollouts: their ids.
        groups: of these; their own ids where they have none.
        runs: whose sums are made again.
        which: raw table -> SQL: the rows that go.

    Returns:
        How many rows.

    Raises:
        duckdb.Error: the disk is full, say; the caller rolls back.
    """
    among = "rollout_id IN (SELECT unnest(?::VARCHAR[]))"
    deleted_rows = 0
    for table in (*BY_ROLLOUT, *_LATEST):
        deleted_rows += delete_rows(connection, table, f"{among} AND {which(_LATEST.get(table, table))}", rollouts)
    deleted_rows += delete_rows(
        connection, REASONS_SETTLED.name, f"{among} AND run_id IN (SELECT unnest(?::VARCHAR[]))", rollouts, [*runs]
    )
    deleted_rows += delete_rows(connection, GROUPS_CHANGED.name, "group_key IN (SELECT unnest(?::VARCHAR[]))", groups)
    connection.execute(
        f"INSERT INTO {GROUPS_CHANGED.name} "  # noqa: S608  # our names
        f"SELECT DISTINCT coalesce(group_id, rollout_id) FROM {ROLLOUTS_LATEST.name} "
        "WHERE coalesce(group_id, rollout_id) IN (SELECT unnest(?::VARCHAR[]))",
        [groups],  # such as have rollouts that stay
    )
    sum_again(connection, runs)
    return deleted_rows


def sum_again(connection: duckdb.DuckDBPyConnection, runs: Collection[str]) -> None:
    """Make the sums of these runs again. Inside the caller's transaction.

    Raises:
        duckdb.Error: as :func:`delete_rollouts`.
    """
    for sums in (RUN_ROLLOUTS, RUN_CALLS, RUN_REWARDS, RUN_TRAINED):
        delete_rows(connection, sums.name, "list_contains(?, run_id)", [*runs])
    for statement in _SUMS_AGAIN:
        connection.execute(statement, {"runs": [*runs]})
