"""Records about the system itself: workers and dead letters."""

from __future__ import annotations

from pydantic import Field

from ._base import Record, RecordEnum

__all__ = ["DeadLetter", "DeadLetterReason", "WorkerHeartbeat", "WorkerStatus"]


class WorkerStatus(RecordEnum):
    """What a worker is doing."""

    UNKNOWN = "unknown"
    IDLE = "idle"
    BUSY = "busy"
    STOPPED = "stopped"


class WorkerHeartbeat(Record):
    """``workers``: a process is alive. Compacted by ``worker_id``.

    ``stats_json`` is what the worker says of itself, as JSON; times are of what the store saw it do.
    ``attempt_ids`` are those of ``rollout_ids``, in the same order; empty where nobody said them.
    """

    worker_id: str
    kind: str
    host: str = ""
    pid: int = 0
    status: WorkerStatus
    rollout_ids: list[str] = Field(default_factory=list[str])
    heartbeat_unix_nano: int
    stats_json: str | None = None
    dequeued_unix_nano: int | None = None
    busy_unix_nano: int | None = None
    idle_unix_nano: int | None = None
    attempt_ids: list[str] = Field(default_factory=list[str])


class DeadLetterReason(RecordEnum):
    """Why a record could not be used."""

    UNKNOWN = "unknown"
    NOT_AVRO = "not_avro"
    UNKNOWN_SCHEMA = "unknown_schema"
    WRONG_TOPIC = "wrong_topic"
    BROKEN_RULE = "broken_rule"
    TOO_LARGE = "too_large"
    PAYLOAD_UNAVAILABLE = "payload_unavailable"


class DeadLetter(Record):
    """``dead-letters``: a record that could not be used, whole. Key: ``<topic>-<partition>-<offset>`` of its origin.

    ``value`` holds the first ``record_bytes_max`` / 2 bytes; ``value_size`` the full length in bytes.
    """

    reason: DeadLetterReason
    detail: str
    origin_topic: str
    origin_partition: int
    origin_offset: int
    key: bytes | None = None
    value: bytes | None = None
    value_size: int = 0
    reported_by: str = ""
    observed_unix_nano: int
