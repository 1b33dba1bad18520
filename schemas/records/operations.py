"""Records about the system itself: workers, dead letters and deletions."""

from __future__ import annotations

from pydantic import Field

from ._base import Record, RecordEnum
from .training import PartitionOffset


class WorkerStatus(RecordEnum):
    """The state of a worker."""

    UNKNOWN = "unknown"
    IDLE = "idle"
    BUSY = "busy"
    STOPPED = "stopped"


class WorkerHeartbeat(Record):
    """``workers``: a process is alive. Compacted by ``worker_id``."""

    worker_id: str
    """Id of the worker."""
    kind: str
    """``runner`` (which reports all of its attempts by itself), ``trainer`` or ``worker``."""
    host: str = ""
    """Machine that the worker runs on."""
    pid: int = 0
    """Process id of the worker."""
    status: WorkerStatus
    """``idle``, ``busy``, ``stopped`` or ``unknown``."""
    rollout_ids: list[str] = Field(default_factory=list[str])
    """Rollouts that it works on."""
    heartbeat_unix_nano: int
    """Time of the worker's last report."""
    stats_json: str | None = None
    """Figures that the worker reports of itself, as JSON."""
    dequeued_unix_nano: int | None = None
    """Time at which it last asked for work, as the store saw it."""
    busy_unix_nano: int | None = None
    """Time at which it last had work, as the store saw it."""
    idle_unix_nano: int | None = None
    """Time at which it last had none, as the store saw it."""
    attempt_ids: list[str] = Field(default_factory=list[str])
    """Attempts of ``rollout_ids``, in the same order; empty where they are unknown."""


class DeadLetterReason(RecordEnum):
    """The reason why a record could not be used."""

    UNKNOWN = "unknown"
    NOT_AVRO = "not_avro"
    UNKNOWN_SCHEMA = "unknown_schema"
    WRONG_TOPIC = "wrong_topic"
    BROKEN_RULE = "broken_rule"
    TOO_LARGE = "too_large"
    PAYLOAD_UNAVAILABLE = "payload_unavailable"


class DeadLetter(Record):
    """``dead-letters``: a record that could not be used, whole. Key: ``<topic>-<partition>-<offset>`` of its origin."""

    reason: DeadLetterReason
    """``not_avro``, ``unknown_schema``, ``wrong_topic``, ``broken_rule``, ``too_large`` or ``payload_unavailable``."""
    detail: str
    """More about the reason, in words."""
    origin_topic: str
    """Topic that the record was in."""
    origin_partition: int
    """Partition that the record was in."""
    origin_offset: int
    """Offset that the record was at."""
    key: bytes | None = None
    """Key of the record."""
    value: bytes | None = None
    """Value of the record; of a long one the first ``record_bytes_max`` / 2 bytes."""
    value_size: int = 0
    """Full length of the value in bytes."""
    reported_by: str = ""
    """Process that could not use the record."""
    observed_unix_nano: int
    """Time at which it was reported."""


class RunDeleted(Record):
    """``deletions``: a run was deleted. Of its records those below ``positions`` count no longer; what comes after
    them, of a run of the same name, does. Compacted by ``run_id``: a later deletion has positions beyond the earlier.
    """

    run_id: str = Field(min_length=1)
    """The run that was deleted."""
    positions: list[PartitionOffset]
    """Of each partition of each topic: the end of the log when the run was deleted."""
    deleted_unix_nano: int
    """Time at which it was deleted."""
