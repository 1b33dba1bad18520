"""The table of current states: one row per rollout, kept up in the transaction that adds its states."""

from __future__ import annotations

from lightstream.schemas.records import RolloutState

from .column import Column
from .declared import LOG_COLUMNS, tables_of

__all__ = ["LATEST_COLUMNS", "LATEST_DDL", "LATEST_DOC", "LATEST_TABLE"]

LATEST_TABLE = "rollouts_latest"
LATEST_DOC = (
    "The latest row of `rollout_states` per rollout, which the view `rollouts` shows: a query reads one row per "
    "rollout, whatever its history."
)

(_STATES,) = tables_of(RolloutState)

LATEST_COLUMNS: tuple[Column, ...] = tuple(
    column
    for column in (*LOG_COLUMNS, *_STATES.columns)
    if column.name != "logged_unix_nano" and not column.name.startswith("verdict_")
)
"""What a rollout is; the result is that of one event."""

LATEST_DDL = (
    f"CREATE TABLE IF NOT EXISTS {LATEST_TABLE} ("
    + ", ".join(f'"{column.name}" {column.sql_type}' for column in LATEST_COLUMNS)
    + ', "attempt_count" BIGINT)'
)
"""``attempt_count`` is the length of ``attempts``: counting reads all that lists hold."""
