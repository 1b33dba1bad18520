"""The raw tables: one per record type, and one per list that is worth rows of its own. All are append-only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lightstream.schemas.records import (
    AttemptClosed,
    AttemptOpened,
    ConsumedTrajectory,
    DeadLetter,
    Drop,
    GateReport,
    Record,
    ReleaseChanged,
    ResourcesRecord,
    RewardRecord,
    RolloutEvent,
    RolloutState,
    RunDeleted,
    SpanRecord,
    TaskRequest,
    TrainingStep,
    Trajectory,
    TripletRecord,
    WorkerHeartbeat,
)

from .column import Column, Encoding, columns_of
from .span_reading import SPAN_READING, read_span

LOG_COLUMNS = (
    Column(
        "log_partition", "INTEGER", pa.int32(), Encoding.PLAIN, (), "partition of the topic that the record lies in."
    ),
    Column("log_offset", "BIGINT", pa.int64(), Encoding.PLAIN, (), "offset of the record in that partition."),
    Column(
        "logged_unix_nano",
        "BIGINT",
        pa.int64(),
        Encoding.PLAIN,
        (),
        "time of the record in Kafka, as the broker or its writer stamped it.",
    ),
)
"""Position of each row in its topic, and the broker's or writer's time stamp."""


@dataclass(frozen=True, slots=True)
class RawTable:
    """One append-only table.

    Attributes:
        name: its name in SQL.
        record: the record type whose records it stores.
        columns: taken from the record, or, with ``items``, from each item of that list.
        items: field whose items are the rows; ``parent_columns`` are then taken from the record itself, and
            ``item_index`` counts from 0.
        derived: further columns whose values ``derive`` works out of the record.
        doc: one line on what a row is.
    """

    name: str
    record: type[Record]
    columns: tuple[Column, ...]
    doc: str
    items: str | None = None
    parent_columns: tuple[Column, ...] = ()
    derived: tuple[Column, ...] = ()
    derive: Callable[[Any], tuple[Any, ...]] | None = None

    @property
    def all_columns(self) -> tuple[Column, ...]:
        """Every column in the table's order."""
        index = (INDEX_COLUMN,) if self.items else ()
        return (*LOG_COLUMNS, *self.parent_columns, *index, *self.columns, *self.derived)

    @property
    def ddl(self) -> str:
        """``CREATE TABLE IF NOT EXISTS`` statement."""
        columns = ", ".join(f'"{column.name}" {column.sql_type}' for column in self.all_columns)
        return f"CREATE TABLE IF NOT EXISTS {self.name} ({columns})"


INDEX_COLUMN = Column(
    "item_index", "INTEGER", pa.int32(), Encoding.PLAIN, (), "place of the row in its record's list, from 0."
)


def _some(record: type[Record], *names: str) -> tuple[Column, ...]:
    return tuple(column for column in columns_of(record, omit=_LISTS) if column.name in names)


_LISTS = ("triplets", "drops", "rewards", "consumed", "images")
"""They are rows of other tables; images are in the requests of ``spans_raw``."""
_OF_TRAJECTORY = ("rollout_id", "attempt_id", "revision")
_SPAN_PREFIXES = {"llm_call": "llm_"}

RAW_TABLES: tuple[RawTable, ...] = (
    RawTable("task_requests_raw", TaskRequest, columns_of(TaskRequest), "A request for waiting rollouts."),
    RawTable(
        "rollout_events",
        RolloutEvent,
        columns_of(
            RolloutEvent,
            prefixes={"rollout": "enqueued_", "rollout_changes": "changed_", "attempt_changes": "attempt_changed_"},
        ),
        "An event about a rollout, as written by stores, the life cycle's timers and the assembler.",
    ),
    RawTable(
        "rollout_states",
        RolloutState,
        columns_of(RolloutState, prefixes={"verdict": "verdict_"}),
        "A rollout after an event; the latest row per rollout is its current state.",
    ),
    RawTable(
        "spans_raw",
        SpanRecord,
        columns_of(SpanRecord, prefixes=_SPAN_PREFIXES),
        "A span as it was logged.",
        derived=SPAN_READING,
        derive=read_span,
    ),
    RawTable("attempts_opened_raw", AttemptOpened, columns_of(AttemptOpened), "An attempt begins."),
    RawTable("attempts_closed_raw", AttemptClosed, columns_of(AttemptClosed), "An attempt is over."),
    RawTable(
        "trajectories_raw",
        Trajectory,
        columns_of(Trajectory, omit=_LISTS, prefixes={"source": "source_"}),
        "An attempt, assembled; one row per revision and emission.",
    ),
    RawTable(
        "triplets_raw",
        Trajectory,
        columns_of(TripletRecord),
        "An LLM call as training data.",
        items="triplets",
        parent_columns=_some(Trajectory, *_OF_TRAJECTORY),
    ),
    RawTable(
        "drops_raw",
        Trajectory,
        columns_of(Drop),
        "A call or reward that did not become training data.",
        items="drops",
        parent_columns=_some(Trajectory, *_OF_TRAJECTORY),
    ),
    RawTable(
        "rewards_raw",
        Trajectory,
        columns_of(RewardRecord),
        "A reward and what it was matched to.",
        items="rewards",
        parent_columns=_some(Trajectory, *_OF_TRAJECTORY),
    ),
    RawTable("resources_raw", ResourcesRecord, columns_of(ResourcesRecord), "A version of the named resources."),
    RawTable(
        "training_steps_raw",
        TrainingStep,
        columns_of(TrainingStep, omit=_LISTS, prefixes={"window": "window_"}),
        "A committed optimiser step.",
    ),
    RawTable(
        "consumed_raw",
        TrainingStep,
        columns_of(ConsumedTrajectory),
        "A trajectory that a step consumed.",
        items="consumed",
        parent_columns=_some(TrainingStep, "trainer_id", "run_id", "step", "outcome"),
    ),
    RawTable("workers_raw", WorkerHeartbeat, columns_of(WorkerHeartbeat), "A worker's heartbeat."),
    RawTable("dead_letters_raw", DeadLetter, columns_of(DeadLetter), "A record that could not be used."),
    RawTable("deletions_raw", RunDeleted, columns_of(RunDeleted), "A run was deleted, up to these positions."),
    RawTable(
        "releases_raw", ReleaseChanged, columns_of(ReleaseChanged), "A change of a release, also one that lost a race."
    ),
    RawTable("gate_reports_raw", GateReport, columns_of(GateReport), "A report of the gate."),
)


def tables_of(record: type[Record]) -> tuple[RawTable, ...]:
    """Tables that a record of this type has rows in."""
    return tuple(table for table in RAW_TABLES if table.record is record)
