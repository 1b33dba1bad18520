"""Records of workers, changed by their actions at the store. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Self, TypeAlias

from lightstream.schemas.records import AttemptState, AttemptStatus, WorkerHeartbeat, WorkerStatus
from lightstream.schemas.types import Worker
from lightstream.schemas.types import WorkerStatus as WorkerStatusName

from .json_text import from_json
from .times import seconds

LOST = (AttemptStatus.TIMEOUT, AttemptStatus.UNRESPONSIVE)
DONE = (AttemptStatus.SUCCEEDED, AttemptStatus.FAILED)


RUNNER = "runner"
"""Kind of a worker that tells, again and again, which attempts it runs, several at once perhaps. Any other has one at a
time: what it takes up takes the place of what it had, and it is free when that ends."""

WorkInHand: TypeAlias = "list[tuple[str, str]]"
"""Ids of rollouts and of their attempts; the latter empty where nobody said them."""


@dataclass(frozen=True, slots=True)
class WorkerChange:
    """A change of a worker's record.

    Attributes:
        fields: of its record to replace; the rest stays.
        taken: rollout and attempt that it works on now.
        over: rollout and attempt that it is rid of.
        idle_unix_nano: when it was free, if it has nothing else in hand.
    """

    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    started: tuple[str, str] | None = None
    over: tuple[str, str] | None = None
    idle_unix_nano: int | None = None

    @classmethod
    def of_attempt(cls, rollout_id: str, attempt: AttemptState, now_unix_nano: int, *, dequeued: bool = False) -> Self:
        """The worker works on this attempt, or is done with it."""
        fields: dict[str, Any] = {"dequeued_unix_nano": now_unix_nano} if dequeued else {}
        work = (rollout_id, attempt.attempt_id)
        if attempt.status in DONE or attempt.status in LOST:
            status = WorkerStatus.IDLE if attempt.status in DONE else WorkerStatus.UNKNOWN
            return cls(fields | {"status": status}, over=work, idle_unix_nano=now_unix_nano)
        busy = {"busy_unix_nano": now_unix_nano, "status": WorkerStatus.BUSY}
        return cls(fields | busy, started=work)

    @classmethod
    def found_nothing(cls, known: WorkerHeartbeat | None, now_unix_nano: int) -> Self:
        """The worker asked for a rollout and there was none."""
        fields: dict[str, Any] = {"dequeued_unix_nano": now_unix_nano}
        if known is not None and (known.status is WorkerStatus.IDLE or _in_hand(known)):
            return cls(fields)
        return cls(fields | {"status": WorkerStatus.IDLE, "idle_unix_nano": now_unix_nano})

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
        fields = dict(self.fields)
        if self.started is not None:
            fields |= _having([*(work for work in _in_hand(known) if work[0] != self.started[0]), self.started])
        elif self.over is not None:
            remaining = [work for work in _in_hand(known) if work not in (self.over, (self.over[0], ""))]
            fields |= _having(remaining) | (
                {"status": WorkerStatus.BUSY} if remaining else {"idle_unix_nano": self.idle_unix_nano}
            )
        return known.model_copy(update=fields)


def _in_hand(known: WorkerHeartbeat) -> WorkInHand:
    """The attempts that a Runner runs, as far as is known; none for any other worker, which has one at a time."""
    if known.kind != RUNNER:
        return []
    return list(zip_longest(known.rollout_ids, known.attempt_ids[: len(known.rollout_ids)], fillvalue=""))


def _having(work: WorkInHand) -> dict[str, Any]:
    return {"rollout_ids": [work_[0] for work_ in work], "attempt_ids": [work_[1] for work_ in work]}


def reported(known: WorkerHeartbeat | None, report: WorkerHeartbeat) -> WorkerHeartbeat:
    """A Runner's own report, together with the store's earlier knowledge, which a report lacks."""
    if known is None:
        return report
    kept = ("stats_json", "dequeued_unix_nano", "busy_unix_nano", "idle_unix_nano")
    attempt_ids = report.attempt_ids
    if not attempt_ids and known.rollout_ids == report.rollout_ids:
        attempt_ids = known.attempt_ids
    return report.model_copy(
        update={name: getattr(known, name) for name in kept if getattr(report, name) is None}
        | {"attempt_ids": attempt_ids}
    )


def without_lost(record: WorkerHeartbeat, attempts: Mapping[str, Sequence[AttemptState]]) -> WorkerHeartbeat:
    """The record as it stands: attempts that a deadline took from the worker, which wrote nothing of it, are gone.

    A worker that asked for a rollout since, and found none, stays idle.

    Args:
        attempts: of the rollouts that the record names.
    """
    stays = {"status": record.status, "idle_unix_nano": record.idle_unix_nano}
    idle = record.status is WorkerStatus.IDLE
    for rollout_id, attempt_id in zip(list(record.rollout_ids), list(record.attempt_ids), strict=False):
        for attempt in attempts.get(rollout_id, ()):
            if attempt.attempt_id == attempt_id and attempt.status in LOST and attempt.worker_id == record.worker_id:
                since = attempt.ended_unix_nano or attempt.last_heartbeat_unix_nano or attempt.started_unix_nano
                record = WorkerChange.of_attempt(rollout_id, attempt, since).applied_to(record.worker_id, record)
                record = record.model_copy(update=stays) if idle else record
    return record


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
        current_attempt_id=(record.attempt_ids[-1] or None) if record.attempt_ids else None,
    )
