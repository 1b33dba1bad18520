"""Records about the system itself: workers and dead letters."""

from __future__ import annotations

from pydantic import Field

from ._base import Record, RecordEnum

__all__ = ["DeadLetter", "DeadLetterReason", "WorkerHeartbeat", "WorkerStatus"]


class WorkerStatus(RecordEnum):
    """The state of a worker."""

    UNKNOWN = "unknown"
    IDLE = "idle"
    BUSY = "busy"
    STOPPED = "stopped"


class WorkerHeartbeat(Record):
    """``workers``: a process is alive. Compacted by ``worker_id``.

    Attributes:
        worker_id: id of the worker.
        kind: ``runner`` (which reports all of its attempts by itself), ``trainer`` or ``worker``.
        host: machine that the worker runs on.
        pid: process id of the worker.
        status: ``idle``, ``busy``, ``stopped`` or ``unknown``.
        rollout_ids: rollouts that it works on.
        heartbeat_unix_nano: when the worker was last heard of.
        stats_json: what the worker says of itself, as JSON.
        dequeued_unix_nano: when it last asked for work, as the store saw it.
        busy_unix_nano: when it last had work, as the store saw it.
        idle_unix_nano: when it last had none, as the store saw it.
        attempt_ids: attempts of ``rollout_ids``, in the same order; empty where they are unknown.
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
    """The reason why a record could not be used."""

    UNKNOWN = "unknown"
    NOT_AVRO = "not_avro"
    UNKNOWN_SCHEMA = "unknown_schema"
    WRONG_TOPIC = "wrong_topic"
    BROKEN_RULE = "broken_rule"
    TOO_LARGE = "too_large"
    PAYLOAD_UNAVAILABLE = "payload_unavailable"


class DeadLetter(Record):
    """``dead-letters``: a record that could not be used, whole. Key: ``<topic>-<partition>-<offset>`` of its origin.

    Attributes:
        reason: ``not_avro``, ``unknown_schema``, ``wrong_topic``, ``broken_rule``, ``too_large`` or
            ``payload_unavailable``.
        detail: more about the reason, in words.
        origin_topic: topic that the record was in.
        origin_partition: partition that the record was in.
        origin_offset: offset that the record was at.
        key: key of the record.
        value: value of the record; of a long one the first ``record_bytes_max`` / 2 bytes.
        value_size: full length of the value in bytes.
        reported_by: process that could not use the record.
        observed_unix_nano: when it was reported.
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
