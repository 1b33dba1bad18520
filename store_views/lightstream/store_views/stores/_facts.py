"""The facts a store writes, with ids that make a retried write the same fact."""

from __future__ import annotations

import json
import uuid

from lightstream.schemas.interfaces import EnqueueRolloutRequest
from lightstream.schemas.records import (
    AttemptStatus,
    EventKind,
    RolloutEvent,
    RolloutMode,
    RolloutSpec,
    RolloutTask,
)

__all__ = ["attempt_ended", "attempt_started", "cancelled", "enqueued", "heartbeat"]

ERROR_MESSAGE_CHARACTERS_MAX = 10_000
"""Long enough for a traceback's end, short enough for a record that is folded in memory."""


def enqueued(request: EnqueueRolloutRequest, now_unix_nano: int) -> RolloutEvent:
    """A rollout is asked for. Without an id in the request, the rollout gets a new one."""
    rollout_id = request.rollout_id or f"ro-{uuid.uuid4().hex[:20]}"
    spec = RolloutSpec(
        rollout_id=rollout_id,
        run_id=request.run_id,
        mode=RolloutMode(request.mode),
        input_json=json.dumps(request.input, ensure_ascii=False),
        resources_id=request.resources_id,
        group_id=request.group_id,
        group_size=request.group_size,
        config=request.config,
        metadata_json=json.dumps(request.metadata, ensure_ascii=False),
        enqueued_unix_nano=now_unix_nano,
    )
    return RolloutEvent(
        event_id=f"{rollout_id}:enqueued:{uuid.uuid4().hex[:8]}",
        kind=EventKind.ENQUEUED,
        rollout_id=rollout_id,
        occurred_unix_nano=now_unix_nano,
        rollout=spec,
    )


def attempt_started(task: RolloutTask, worker_id: str, now_unix_nano: int) -> RolloutEvent:
    """A worker wants to begin this attempt; the life cycle accepts the first that asks."""
    rollout_id = task.rollout.rollout_id
    attempt_id = f"{rollout_id}-a{task.attempt_sequence}-{uuid.uuid4().hex[:8]}"
    return RolloutEvent(
        event_id=f"{attempt_id}:started",
        kind=EventKind.ATTEMPT_STARTED,
        rollout_id=rollout_id,
        occurred_unix_nano=now_unix_nano,
        attempt_id=attempt_id,
        attempt_sequence=task.attempt_sequence,
        worker_id=worker_id,
    )


def attempt_ended(
    rollout_id: str,
    attempt_id: str,
    now_unix_nano: int,
    *,
    succeeded: bool,
    error_type: str | None,
    error_message: str | None,
) -> RolloutEvent:
    """The worker is done with the attempt. One such fact per attempt: a retried write has the same id."""
    if error_message is not None and len(error_message) > ERROR_MESSAGE_CHARACTERS_MAX:
        error_message = "…" + error_message[-ERROR_MESSAGE_CHARACTERS_MAX:]
    return RolloutEvent(
        event_id=f"{attempt_id}:ended",
        kind=EventKind.ATTEMPT_ENDED,
        rollout_id=rollout_id,
        occurred_unix_nano=now_unix_nano,
        attempt_id=attempt_id,
        outcome=AttemptStatus.SUCCEEDED if succeeded else AttemptStatus.FAILED,
        error_type=error_type,
        error_message=error_message,
    )


def heartbeat(rollout_id: str, attempt_id: str, worker_id: str, now_unix_nano: int) -> RolloutEvent:
    """The attempt is alive."""
    return RolloutEvent(
        event_id=f"{attempt_id}:heartbeat:{now_unix_nano}",
        kind=EventKind.HEARTBEAT,
        rollout_id=rollout_id,
        occurred_unix_nano=now_unix_nano,
        attempt_id=attempt_id,
        worker_id=worker_id,
    )


def cancelled(rollout_id: str, reason: str, now_unix_nano: int) -> RolloutEvent:
    """Somebody wants the rollout to stop."""
    return RolloutEvent(
        event_id=f"{rollout_id}:cancelled:{uuid.uuid4().hex[:8]}",
        kind=EventKind.CANCELLED,
        rollout_id=rollout_id,
        occurred_unix_nano=now_unix_nano,
        reason=reason or None,
    )
