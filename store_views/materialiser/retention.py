"""Rows leave the view once they are old: finished rollouts by their group, with all that belongs to them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

import duckdb
import pyarrow as pa

from lightstream.runtime.clock import NANOS_PER_SECOND
from lightstream.runtime.settings import Settings, seconds_by_run

from ..tables.kept import ROLLOUTS_LATEST
from .leaving import BY_ROLLOUT, delete_rollouts, delete_rows, sum_again

logger = logging.getLogger(__name__)

ROLLOUTS_PER_PASS = 20_000
"""So many leave in one transaction, about: rows that come wait for it, a second or two."""
PASSES_PER_AGE = 20
INTERVAL_S_MAX = 600.0
"""From one look for old rows to the next; rows are older than they may be by a twentieth, or ten minutes, at most."""

_KNOWN_RUNS = f"""
SELECT DISTINCT run_id FROM {ROLLOUTS_LATEST.name} UNION SELECT DISTINCT run_id FROM training_steps_raw
UNION SELECT DISTINCT run_id FROM resources_raw
"""  # noqa: S608  # our name

_OLD_GROUPS = f"""
WITH trained_until AS (
    SELECT run_id, max(unix_nano) AS unix_nano FROM (
        SELECT run_id, max(logged_unix_nano) AS unix_nano FROM training_steps_raw GROUP BY ALL
        UNION ALL
        SELECT json_extract_string(stats_json, '$.run_id') AS run_id, max(logged_unix_nano) AS unix_nano
        FROM workers_raw WHERE kind = 'trainer' GROUP BY ALL
    ) GROUP BY ALL
),
settled AS (
    SELECT rollout_id AS id FROM consumed_raw UNION SELECT unnest(skipped_groups) AS id FROM training_steps_raw
),
rollout AS (
    SELECT run_id, coalesce(group_id, rollout_id) AS group_key,
        greatest(updated_unix_nano, coalesce(ended_unix_nano, 0)) AS changed_unix_nano,
        status IN ('succeeded', 'failed', 'cancelled') AS over,
        mode = 'train' AND rollout_id NOT IN (SELECT id FROM settled) AS untrained
    FROM {ROLLOUTS_LATEST.name}
),
of_group AS (
    SELECT run_id, group_key, count(*) AS rollouts, max(changed_unix_nano) AS changed_unix_nano,
        bool_and(over) AS over, bool_or(untrained) AS untrained
    FROM rollout GROUP BY run_id, group_key
)
SELECT run_id, group_key, rollouts, changed_unix_nano
FROM of_group
JOIN cutoffs USING (run_id)
LEFT JOIN trained_until USING (run_id)
WHERE over AND changed_unix_nano < cutoffs.unix_nano AND (
    NOT untrained
    OR trained_until.unix_nano IS NULL OR trained_until.unix_nano < cutoffs.unix_nano
    OR group_key IN (SELECT id FROM settled)
)
ORDER BY changed_unix_nano LIMIT {ROLLOUTS_PER_PASS}
"""  # noqa: S608  # our names
"""Groups of which every rollout is over, and nothing changed since. Where their run is being trained, its rollouts wait
until a step has consumed or skipped them."""

_ALIVE = f"""
rollout_id IN (SELECT rollout_id FROM {ROLLOUTS_LATEST.name})
OR rollout_id IN (SELECT rollout_id FROM rollout_events WHERE enqueued_run_id IS NOT NULL)
"""  # noqa: S608  # our name
"""A rollout that the view has, or will have once the life cycle has come to it."""

_SILENT_RUNS = f"""
SELECT run_id FROM cutoffs
WHERE run_id <> '' AND run_id NOT IN (SELECT run_id FROM {ROLLOUTS_LATEST.name})
    AND coalesce((SELECT max(logged_unix_nano) FROM training_steps_raw AS step WHERE step.run_id = cutoffs.run_id), 0)
        < cutoffs.unix_nano
    AND coalesce((SELECT max(logged_unix_nano) FROM resources_raw AS made WHERE made.run_id = cutoffs.run_id), 0)
        < cutoffs.unix_nano
"""  # noqa: S608  # our name
_OF_RUN = ("training_steps_raw", "consumed_raw", "resources_raw")
_OF_NO_ROLLOUT = ("task_requests_raw", "dead_letters_raw")


@dataclass(frozen=True, slots=True)
class Retention:
    """Times for which the view keeps finished data.

    Attributes:
        age_s: seconds; ``None`` means for ever.
        runs: pattern of a run's name -> as ``age_s``; the first that matches counts in place of it.
    """

    age_s: float | None
    runs: Mapping[str, float | None]

    @classmethod
    def of(cls, settings: Settings) -> Retention:
        """The times of the settings."""
        return cls(settings.view_retention_s, seconds_by_run(settings.view_retention_runs))

    @property
    def interval_s(self) -> float | None:
        """Seconds from one look for old rows to the next; ``None`` where nothing ever leaves."""
        ages = [age_s for age_s in (self.age_s, *self.runs.values()) if age_s is not None]
        return min(INTERVAL_S_MAX, min(ages) / PASSES_PER_AGE) if ages else None

    def of_run(self, run_id: str) -> float | None:
        """Seconds for which finished data of a run are kept; ``None`` means for ever."""
        return next((age_s for pattern, age_s in self.runs.items() if fnmatchcase(run_id, pattern)), self.age_s)


def delete_old_rows(connection: duckdb.DuckDBPyConnection, retention: Retention, now_unix_nano: int) -> int:
    """Delete rows that are too old. Inside the caller's transaction.

    Those of many rollouts leave in several calls, until one deletes nothing.

    Returns:
        How many rows.

    Raises:
        duckdb.Error: the disk is full, say; the caller rolls back.
    """
    runs = [run_id for (run_id,) in connection.execute(_KNOWN_RUNS).fetchall() if run_id is not None]
    before = {
        run_id: now_unix_nano - int(age_s * NANOS_PER_SECOND)
        for run_id in runs
        if (age_s := retention.of_run(run_id)) is not None
    }
    cutoffs = pa.table({"run_id": pa.array(before, pa.string()), "unix_nano": pa.array(before.values(), pa.int64())})
    connection.register("cutoffs", cutoffs)
    try:
        deleted_rows = _delete_old_groups(connection)
        silent = [run_id for (run_id,) in connection.execute(_SILENT_RUNS).fetchall()]
    finally:
        connection.unregister("cutoffs")
    if silent:
        deleted_rows += sum(delete_rows(connection, table, "list_contains(?, run_id)", silent) for table in _OF_RUN)
        sum_again(connection, silent)
    if retention.age_s is not None:
        cutoff = now_unix_nano - int(retention.age_s * NANOS_PER_SECOND)
        for table in BY_ROLLOUT:
            if table != "consumed_raw":
                which = f"logged_unix_nano < ? AND (rollout_id IS NULL OR NOT ({_ALIVE}))"
                deleted_rows += delete_rows(connection, table, which, cutoff)
        for table in _OF_NO_ROLLOUT:
            deleted_rows += delete_rows(connection, table, "logged_unix_nano < ?", cutoff)
        deleted_rows += delete_rows(
            connection,
            "workers_raw",
            "logged_unix_nano < ? AND log_offset NOT IN (SELECT max(log_offset) FROM workers_raw GROUP BY worker_id)",
            cutoff,
        )
    return deleted_rows


def _delete_old_groups(connection: duckdb.DuckDBPyConnection) -> int:
    groups: list[str] = []
    runs: set[str] = set()
    rollouts = 0
    for run_id, group_key, count, _ in connection.execute(_OLD_GROUPS).fetchall():
        if rollouts and rollouts + count > ROLLOUTS_PER_PASS:
            break
        groups.append(group_key)
        runs.add(run_id)
        rollouts += count
    if not groups:
        return 0
    old_rollouts = connection.execute(
        f"SELECT rollout_id FROM {ROLLOUTS_LATEST.name} "  # noqa: S608  # our name
        "WHERE list_contains(?, run_id) AND coalesce(group_id, rollout_id) IN (SELECT unnest(?::VARCHAR[]))",
        [sorted(runs), groups],
    ).fetchall()
    deleted_rows = delete_rollouts(
        connection, [rollout_id for (rollout_id,) in old_rollouts], groups, runs=sorted(runs)
    )
    logger.info("%d rollouts are older than the view keeps them: %d rows are gone", len(old_rollouts), deleted_rows)
    return deleted_rows
