"""The topics, declared once: creation, schemas, tables and documentation all read ``TOPICS``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .records import (
    AttemptClosed,
    AttemptOpened,
    DeadLetter,
    GateReport,
    Record,
    ReleaseChanged,
    ResourcesRecord,
    RolloutEvent,
    RolloutState,
    RunDeleted,
    SpanRecord,
    TaskRequest,
    TrainingStep,
    Trajectory,
    WorkerHeartbeat,
)

KEEP_FOR_EVER_MS = -1


class Cleanup(StrEnum):
    """The broker's treatment of old records (``cleanup.policy``)."""

    DELETE = "delete"
    COMPACT = "compact"


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic.

    Attributes:
        name: name without prefix.
        key: what the record key is.
        records: record types it carries; the first is the main one.
        cleanup: deletion by age, or compaction by key.
        retention_ms: age in milliseconds at which records may go; -1 keeps them forever.
        single_partition: one partition whatever the setting, so that "latest" has one order.
        by_broker_time: records have the time at which the broker wrote them down, not what their writer's clock said.
        made_by, read_by: which parts write and read it by themselves; Runners do so through a store.
    """

    name: str
    key: str
    records: tuple[type[Record], ...]
    made_by: tuple[str, ...]
    read_by: tuple[str, ...]
    cleanup: Cleanup = Cleanup.DELETE
    retention_ms: int = KEEP_FOR_EVER_MS
    single_partition: bool = False
    by_broker_time: bool = False

    def full_name(self, prefix: str) -> str:
        """Name on the cluster."""
        return f"{prefix}{self.name}"

    def partitions(self, setting: int) -> int:
        """Number of partitions, given the setting ``topic_partitions``."""
        return 1 if self.single_partition else setting


ROLLOUT_EVENTS = Topic(
    "rollout-events",
    "rollout_id, request_id",
    (RolloutEvent, TaskRequest),
    ("stores", "life cycle", "assembler"),
    ("life cycle", "view"),
    by_broker_time=True,
)
ROLLOUTS = Topic(
    "rollouts",
    "rollout_id",
    (RolloutState,),
    ("life cycle",),
    ("life cycle", "stores", "view"),
    cleanup=Cleanup.COMPACT,
)
SPANS = Topic(
    "spans",
    "rollout_id, else trace_id",
    (SpanRecord, AttemptOpened, AttemptClosed),
    ("exporter", "gateway", "LLM proxy", "stores", "attach-trace", "view (scores)", "life cycle"),
    ("assembler", "view", "attach-trace", "replay"),
)
TRAJECTORIES = Topic(
    "trajectories", "group_id, else rollout_id", (Trajectory,), ("assembler", "replay"), ("trainers", "view", "replay")
)
RESOURCES = Topic(
    "resources",
    "resources_id",
    (ResourcesRecord,),
    ("trainers", "stores"),
    ("stores", "trainers", "policy server", "view"),
    cleanup=Cleanup.COMPACT,
    single_partition=True,
)
WORKERS = Topic(
    "workers",
    "worker_id",
    (WorkerHeartbeat,),
    ("stores",),
    ("stores", "view"),
    cleanup=Cleanup.COMPACT,
    single_partition=True,
)
TRAINING_STEPS = Topic(
    "training-steps",
    "trainer_id",
    (TrainingStep,),
    ("trainers",),
    ("trainers", "replay", "view"),
    single_partition=True,
)
DEAD_LETTERS = Topic(
    "dead-letters",
    "origin",
    (DeadLetter,),
    ("life cycle", "assembler", "view", "gateway"),
    ("view",),
    single_partition=True,
)
DELETIONS = Topic(
    "deletions",
    "run_id",
    (RunDeleted,),
    ("`lightstream runs delete`",),
    ("view", "trainers"),
    cleanup=Cleanup.COMPACT,
    single_partition=True,
)
RELEASES = Topic(
    "releases",
    "release",
    (ReleaseChanged, GateReport),
    ("`lightstream release`", "`lightstream gate`", "view (rules, page)"),
    ("LLM proxy", "view"),
    single_partition=True,
    by_broker_time=True,
)

TOPICS: tuple[Topic, ...] = (
    ROLLOUT_EVENTS,
    ROLLOUTS,
    SPANS,
    TRAJECTORIES,
    RESOURCES,
    WORKERS,
    TRAINING_STEPS,
    DEAD_LETTERS,
    DELETIONS,
    RELEASES,
)


def topic_named(name: str) -> Topic:
    """The topic of that (unprefixed) name.

    Raises:
        KeyError: there is none; the message lists those there are.
    """
    for topic in TOPICS:
        if topic.name == name:
            return topic
    raise KeyError(f"no topic {name!r}; there are {', '.join(t.name for t in TOPICS)}")
