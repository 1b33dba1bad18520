"""What a worker's record says after the store saw it do something. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

from lightstream.schemas.records import AttemptState, AttemptStatus, WorkerHeartbeat, WorkerStatus
from lightstream.schemas.types import Worker
from lightstream.schemas.types import WorkerStatus as WorkerStatusName

from ._json import from_json
from ._times import seconds

__all__ = ["WorkerChange", "reported", "worker"]

LOST = (AttemptStatus.TIMEOUT, AttemptStatus.UNRESPONSIVE)
DONE = (AttemptStatus.SUCCEEDED, AttemptStatus.FAILED)


@dataclass(frozen=True, slots=True)
class WorkerChange:
    """Fields of a worker's record to replace; the rest stays."""

    fields: dict[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def of_attempt(cls, rollout_id: str, attempt: AttemptState, now_unix_nano: int, *, dequeued: bool = False) -> Self:
        """The worker has this attempt in hand, or is rid of it."""
        fields: dict[str, Any] = {"dequeued_unix_nano": now_unix_nano} if dequeued else {}
        if attempt.status in DONE or attempt.status in LOST:
            status = WorkerStatus.IDLE if attempt.status in DONE else WorkerStatus.UNKNOWN
            free = {"idle_unix_nano": now_unix_nano, "status": status, "rollout_ids": [], "attempt_id": None}
            return cls(fields | free)
        busy = {
            "busy_unix_nano": now_unix_nano,
            "status": WorkerStatus.BUSY,
            "rollout_ids": [rollout_id],
            "attempt_id": attempt.attempt_id,
        }
        return cls(fields | busy)

    @classmethod
    def found_nothing(cls, known: WorkerHeartbeat | None, now_unix_nano: int) -> Self:
        """The worker asked for a rollout and there was none."""
        fields: dict[str, Any] = {"dequeued_unix_nano": now_unix_nano}
        if known is None or known.status is not WorkerStatus.IDLE:
            fields |= {"status": WorkerStatus.IDLE, "idle_unix_nano": now_unix_nano}
        return cls(fields)

    @classmethod
    def alive(cls, now_unix_nano: int, stats_json: str | None) -> Self:
        """The worker says that it lives, and maybe more."""
        fields: dict[str, Any] = {"heartbeat_unix_nano": now_unix_nano}
        return cls(fields if stats_json is None else fields | {"stats_json": stats_json})

    def applied_to(self, worker_id: str, known: WorkerHeartbeat | None) -> WorkerHeartbeat:
        """The worker's record after this."""
        if known is None:
            known = WorkerHeartbeat(
                worker_id=worker_id, kind="worker", status=WorkerStatus.UNKNOWN, heartbeat_unix_nano=0
            )
        return known.model_copy(update=self.fields)


def reported(known: WorkerHeartbeat | None, told: WorkerHeartbeat) -> WorkerHeartbeat:
    """A Runner's own report, with what the store saw before: a report says nothing of that."""
    if known is None:
        return told
    kept = ("stats_json", "dequeued_unix_nano", "busy_unix_nano", "idle_unix_nano")
    attempt_id = known.attempt_id if known.rollout_ids == told.rollout_ids else told.attempt_id
    return told.model_copy(
        update={name: getattr(known, name) for name in kept if getattr(told, name) is None} | {"attempt_id": attempt_id}
    )


_NAMES: dict[WorkerStatus, WorkerStatusName] = {WorkerStatus.IDLE: "idle", WorkerStatus.BUSY: "busy"}


def worker(record: WorkerHeartbeat) -> Worker:
    """A worker as its users see it."""
    return Worker(
        worker_id=record.worker_id,
        status=_NAMES.get(record.status, "unknown"),
        heartbeat_stats=None if record.stats_json is None else from_json(record.stats_json),
        last_heartbeat_time=seconds(record.heartbeat_unix_nano or None),
        last_dequeue_time=seconds(record.dequeued_unix_nano),
        last_busy_time=seconds(record.busy_unix_nano),
        last_idle_time=seconds(record.idle_unix_nano),
        current_rollout_id=record.rollout_ids[-1] if record.rollout_ids else None,
        current_attempt_id=record.attempt_id,
    )
