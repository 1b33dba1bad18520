"""Records that a transition sends out. They are durable before the state that implies them is written."""

from __future__ import annotations

from typing import NamedTuple

from lightstream.schemas.records import (
    AttemptClosed,
    AttemptOpened,
    AttemptState,
    AttemptStatus,
    RolloutState,
)
from lightstream.schemas.topics import SPANS, Topic

__all__ = [
    "CANCELLED_ERROR_TYPE",
    "SUPERSEDED_ERROR_TYPE",
    "Effect",
    "closed",
    "opened",
    "stand_in",
    "superseded",
]

CANCELLED_ERROR_TYPE = "Cancelled"
SUPERSEDED_ERROR_TYPE = "Superseded"


class Effect(NamedTuple):
    """One record to write: to which topic, under which key."""

    topic: Topic
    key: str
    record: AttemptOpened | AttemptClosed


def opened(state: RolloutState, attempt: AttemptState) -> Effect:
    """``attempt`` begins: the first record of it among the spans."""
    record = AttemptOpened(
        rollout=state.rollout,
        attempt_id=attempt.attempt_id,
        attempt_sequence=attempt.sequence,
        worker_id=attempt.worker_id,
        opened_unix_nano=attempt.started_unix_nano,
    )
    return Effect(SPANS, state.rollout.rollout_id, record)


def closed(state: RolloutState, attempt: AttemptState, closed_unix_nano: int) -> Effect:
    """``attempt`` is over; ``state`` is the rollout after that. Final when the rollout is over too."""
    record = AttemptClosed(
        rollout_id=state.rollout.rollout_id,
        attempt_id=attempt.attempt_id,
        attempt_sequence=attempt.sequence,
        status=attempt.status,
        rollout_status=state.status,
        final=state.status.is_terminal,
        error_type=attempt.error_type,
        error_message=attempt.error_message,
        closed_unix_nano=closed_unix_nano,
    )
    return Effect(SPANS, state.rollout.rollout_id, record)


def superseded(state: RolloutState, attempt: AttemptState, closed_unix_nano: int) -> Effect:
    """``attempt`` counts no more, though it has not ended: the rollout waits for another, or has one."""
    if attempt.status is AttemptStatus.UNRESPONSIVE:
        return closed(state, attempt, closed_unix_nano)
    failed = {
        "status": AttemptStatus.FAILED,
        "error_type": SUPERSEDED_ERROR_TYPE,
        "error_message": "another attempt took its place",
    }
    return closed(state, attempt.model_copy(update=failed), closed_unix_nano)


def stand_in(
    state: RolloutState, status: AttemptStatus, now_unix_nano: int, error_type: str | None, reason: str | None
) -> AttemptState:
    """An attempt that never was, to open and close for a rollout that ends while none runs."""
    return AttemptState(
        attempt_id=f"{state.rollout.rollout_id}-none",
        sequence=len(state.attempts) + 1,
        status=status,
        started_unix_nano=now_unix_nano,
        ended_unix_nano=now_unix_nano,
        error_type=error_type,
        error_message=reason,
        closed=True,
    )
