"""The steps of an attempt: its next state, its rollout's, and the records that go out to ``spans``.

The records are durable before the state that implies them is written.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from lightstream.schemas.both_ends import both_ends
from lightstream.schemas.records import (
    AttemptChanges,
    AttemptClosed,
    AttemptOpened,
    AttemptState,
    AttemptStatus,
    RolloutEvent,
    RolloutState,
    RolloutStatus,
)
from lightstream.schemas.topics import SPANS, Topic

from .limits import ERROR_MESSAGE_CHARACTERS_MAX, ERROR_TYPE_CHARACTERS_MAX
from .situation import open_attempt

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
    sequence = len(state.attempts) + 1
    return AttemptState(
        attempt_id=f"{state.rollout.rollout_id}-none{sequence}",
        sequence=sequence,
        status=status,
        started_unix_nano=now_unix_nano,
        ended_unix_nano=now_unix_nano,
        error_type=error_type,
        error_message=reason,
        closed=True,
    )


def new(state: RolloutState, event: RolloutEvent) -> AttemptState:
    """The attempt that the event begins: prepared, not yet heard of."""
    return AttemptState(
        attempt_id=event.attempt_id or "",
        sequence=len(state.attempts) + 1,
        status=AttemptStatus.PREPARING,
        worker_id=event.worker_id,
        started_unix_nano=event.occurred_unix_nano,
    )


def noted(attempt: AttemptState, changes: AttemptChanges) -> AttemptState:
    """The attempt with ``changes`` applied, all but the status."""
    given: dict[str, Any] = {
        "worker_id": changes.worker_id,
        "last_heartbeat_unix_nano": changes.last_heartbeat_unix_nano,
        "metadata_json": changes.metadata_json,
    }
    return attempt.model_copy(update={name: value for name, value in given.items() if value is not None})


def going_on(attempt: AttemptState, status: AttemptStatus) -> AttemptState:
    """The attempt, alive. If it had fallen silent, that is forgotten."""
    return attempt.model_copy(update={"status": status, "error_type": None, "error_message": None})


def heard(attempt: AttemptState, now_unix_nano: int) -> AttemptState:
    """The attempt after a sign of life."""
    return going_on(attempt, AttemptStatus.RUNNING).model_copy(update={"last_heartbeat_unix_nano": now_unix_nano})


def ended(
    attempt: AttemptState, status: AttemptStatus, now_unix_nano: int, error_type: str | None, message: str | None
) -> AttemptState:
    """The attempt, over."""
    return attempt.model_copy(
        update={
            "status": status,
            "ended_unix_nano": now_unix_nano,
            "error_type": error_type and both_ends(error_type, ERROR_TYPE_CHARACTERS_MAX),
            "error_message": message and both_ends(message, ERROR_MESSAGE_CHARACTERS_MAX),
            "closed": True,
        }
    )


def close(
    state: RolloutState,
    event: RolloutEvent,
    attempt: AttemptState,
    status: AttemptStatus,
    error_type: str | None,
    error_message: str | None,
) -> tuple[RolloutState, list[Effect]]:
    """End ``attempt``, the open one, and with it the rollout unless it is to be tried again."""
    now = event.occurred_unix_nano
    attempt = ended(attempt, status, now, error_type, error_message)
    attempts = with_last(state, attempt)
    if status is AttemptStatus.SUCCEEDED:
        after = moved(state, event, RolloutStatus.SUCCEEDED, attempts)
    elif may_retry(state, status):
        after = moved(state, event, RolloutStatus.REQUEUING, attempts)
    else:
        after = moved(state, event, RolloutStatus.FAILED, attempts)
    return after, [closed(after, attempt, now)]


def without_open(state: RolloutState, event: RolloutEvent) -> tuple[list[AttemptState], AttemptState | None]:
    """The attempts after another takes the place of the open one, and the one that lost it.

    One that fell silent is given up for good. Any other keeps its status: its Runner may still report how it ends.
    """
    attempt = open_attempt(state)
    if attempt is None:
        return state.attempts, None
    given_up = event.occurred_unix_nano if attempt.status is AttemptStatus.UNRESPONSIVE else None
    attempt = attempt.model_copy(update={"closed": True, "ended_unix_nano": given_up})
    return with_last(state, attempt), attempt


def may_retry(state: RolloutState, status: AttemptStatus) -> bool:
    """Whether the policy grants another attempt after one that ended so."""
    config = state.rollout.config
    return status in config.retry_condition and len(state.attempts) < config.max_attempts


def with_last(state: RolloutState, attempt: AttemptState) -> list[AttemptState]:
    """The attempts with ``attempt`` in the last one's place."""
    return [*state.attempts[:-1], attempt]


def with_known(state: RolloutState, attempt: AttemptState) -> list[AttemptState]:
    """The attempts with ``attempt`` in the place of the one with its id."""
    return [attempt if known.attempt_id == attempt.attempt_id else known for known in state.attempts]


def moved(
    state: RolloutState, event: RolloutEvent, status: RolloutStatus, attempts: list[AttemptState]
) -> RolloutState:
    """The rollout with that status."""
    return state.model_copy(
        update={
            "status": status,
            "attempts": attempts,
            "updated_unix_nano": event.occurred_unix_nano,
            "ended_unix_nano": event.occurred_unix_nano if status.is_terminal else None,
        }
    )
