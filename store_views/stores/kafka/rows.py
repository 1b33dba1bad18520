"""Rows of the view as the records they were made of."""

from __future__ import annotations

from typing import Any

from lightstream.schemas.records import (
    AssemblySpec,
    AttemptState,
    EventKind,
    ResourcesRecord,
    RolloutConfig,
    RolloutSpec,
    RolloutState,
    Verdict,
    VerdictOutcome,
)

from ..json_text import from_json

NOT_TOLD = Verdict(event_id="-", kind=EventKind.UNKNOWN, outcome=VerdictOutcome.UNKNOWN)

SPEC = (
    "rollout_id",
    "run_id",
    "mode",
    "input_json",
    "resources_id",
    "group_id",
    "group_size",
    "metadata_json",
    "enqueued_unix_nano",
)
ASSEMBLY = ("credit", "reward_match", "trained_agents")
CONFIG = ("timeout_seconds", "unresponsive_seconds", "max_attempts", "retry_condition", "priority")


def state_of_row(row: dict[str, Any]) -> RolloutState:
    """A row of the view ``rollouts``. The result of its last event is not in it."""
    assembly = {name: row[name] for name in ASSEMBLY if row[name] is not None}
    return RolloutState(
        rollout=RolloutSpec(
            **{name: row[name] for name in SPEC},
            config=RolloutConfig(**{name: row[name] for name in CONFIG}),
            assembly=AssemblySpec(**assembly) if assembly else None,
        ),
        status=row["status"],
        attempts=attempts_of_row(row),
        updated_unix_nano=row["updated_unix_nano"],
        ended_unix_nano=row["ended_unix_nano"],
        source_offset=row["source_offset"],
        verdict=NOT_TOLD,
    )


def attempts_of_row(row: dict[str, Any]) -> list[AttemptState]:
    """The attempts that a row of the view ``rollouts`` tells of."""
    attempts = from_json(row["attempts"]) if isinstance(row["attempts"], str) else row["attempts"]
    return [AttemptState(**attempt) for attempt in attempts or ()]


def resources_of_row(row: dict[str, Any]) -> ResourcesRecord:
    """A row of the view ``resources``."""
    fields = {name: row[name] for name in ResourcesRecord.model_fields}
    maps = ("resources", "adapters", "made_with")
    return ResourcesRecord(**fields | {name: from_json(row[name]) for name in maps})
