"""Deletes the rows of deleted runs (:mod:`lightstream.runtime.deletions`).

Topics are read in no order, so the rows go once all up to the ends that a deletion names was read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

import duckdb

from lightstream.schemas.records import RunDeleted

from ..tables import tables_of
from ..tables.kept import DELETIONS_PENDING, ROLLOUTS_DELETED, UNREAD_RECORDS
from .leaving import TOPIC_OF, delete_rollouts, delete_rows
from .positions import Place

logger = logging.getLogger(__name__)

(_DELETIONS,) = tables_of(RunDeleted)

_OF_TRAINER = "kind = 'trainer' AND json_valid(stats_json) AND stats_json ->> '$.run_id' = ?"

_BY_RUN = ("task_requests_raw", "resources_raw", "training_steps_raw", "consumed_raw")

_PENDING = f"""
SELECT log_offset, run_id, positions FROM {_DELETIONS.name}
WHERE log_offset IN (SELECT log_offset FROM {DELETIONS_PENDING.name}) ORDER BY log_offset
"""  # noqa: S608  # our names


def delete_what_is_due(connection: duckdb.DuckDBPyConnection, reached: Mapping[Place, int]) -> int:
    """Delete the rows of runs whose deletions are reached. Inside the caller's transaction.

    Args:
        reached: place -> next offset, with this transaction.

    Returns:
        How many rows.

    Raises:
        duckdb.Error: the disk is full, say; the caller rolls back.
    """
    deleted_rows = 0
    for log_offset, run_id, positions in connection.execute(_PENDING).fetchall():
        ends: dict[Place, int] = {(at["topic"], at["partition"]): at["offset"] for at in positions}
        if any(reached.get(place, 0) < end for place, end in ends.items()):
            continue
        deleted_rows += _delete_rows(connection, run_id, ends, log_offset)
        connection.execute(f"DELETE FROM {DELETIONS_PENDING.name} WHERE log_offset = ?", [log_offset])  # noqa: S608
    return deleted_rows


def _delete_rows(connection: duckdb.DuckDBPyConnection, run_id: str, ends: Mapping[Place, int], log_offset: int) -> int:
    """Delete a run's rows below these ends, make its sums again, and note which rollouts are gone."""

    def below(table: str) -> str:
        return _below(TOPIC_OF[table], ends)

    sources = [(name, "run_id") for name in ("rollout_states", "trajectories_raw", "attempts_opened_raw")]
    sources.append(("rollout_events", "enqueued_run_id"))
    query = " UNION ".join(
        f"SELECT rollout_id, {group} AS group_id FROM {table} WHERE {column} = $run AND {below(table)}"  # noqa: S608
        for table, column in sources
        for group in ["enqueued_group_id" if table == "rollout_events" else "group_id"]
    )
    rows = connection.execute(query, {"run": run_id}).fetchall()
    rollouts = sorted({rollout for rollout, _ in rows})
    groups = sorted({group or rollout for rollout, group in rows})
    keys = sorted({*rollouts, *groups})
    deleted_rows = sum(delete_rows(connection, table, f"run_id = ? AND {below(table)}", run_id) for table in _BY_RUN)
    deleted_rows += delete_rows(connection, "workers_raw", f"{_OF_TRAINER} AND {below('workers_raw')}", run_id)
    deleted_rows += delete_rollouts(connection, rollouts, groups, runs=[run_id], which=below)
    for table, topic, prefix in (
        ("dead_letters_raw", "origin_topic", "origin_"),
        (UNREAD_RECORDS.name, "topic", "log_"),
    ):
        of_run = f"key IN (SELECT encode(unnest(?::VARCHAR[]))) AND {_any_below(prefix, topic, ends)}"
        deleted_rows += delete_rows(connection, table, of_run, keys)
    connection.execute(
        f"INSERT INTO {ROLLOUTS_DELETED.name} SELECT unnest(?::VARCHAR[]), ?",  # our name
        [rollouts, log_offset],
    )
    logger.info("run %r was deleted: the rows of %d rollouts are gone", run_id, len(rollouts))
    return deleted_rows


def _below(topic: str, ends: Mapping[Place, int], prefix: str = "log_") -> str:
    """SQL: the row's record lies below the end of its partition."""
    cases = " ".join(f"WHEN {partition} THEN {end}" for (name, partition), end in ends.items() if name == topic)
    return f"{prefix}offset < CASE {prefix}partition {cases} ELSE 0 END" if cases else "false"


def _any_below(prefix: str, topic_column: str, ends: Mapping[Place, int]) -> str:
    """As :func:`_below`, where a column names the topic."""
    topics: Iterable[str] = sorted({topic for topic, _ in ends})
    return (
        "(" + " OR ".join(f"({topic_column} = '{topic}' AND {_below(topic, ends, prefix)})" for topic in topics) + ")"
    )
