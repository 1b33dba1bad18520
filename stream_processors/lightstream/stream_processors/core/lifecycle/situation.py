"""Where a rollout stands from the point of view of one fact: the columns of the transition table."""

from __future__ import annotations

from enum import Enum

from lightstream.schemas.records import (
    AttemptState,
    AttemptStatus,
    EventKind,
    RolloutEvent,
    RolloutState,
    RolloutStatus,
)

__all__ = ["ABOUT_AN_ATTEMPT", "Situation", "open_attempt", "situation_of"]

ABOUT_AN_ATTEMPT = frozenset(
    {
        EventKind.ATTEMPT_STARTED,
        EventKind.HEARTBEAT,
        EventKind.ATTEMPT_ENDED,
        EventKind.TIMED_OUT,
        EventKind.UNRESPONSIVE,
    }
)
"""Kinds of facts that name an attempt."""


class Situation(Enum):
    """What a fact meets.

    For a fact that names an attempt of the rollout: ``RUNNING`` or ``SILENT`` when it is the open one, ``OVER`` when
    it has ended or was superseded. For any other fact: ``WAITING`` for an attempt, ``BUSY`` with one, or ``FINISHED``.
    """

    NO_ROLLOUT = "no rollout"
    WAITING = "waiting"
    BUSY = "busy"
    FINISHED = "finished"
    RUNNING = "running"
    SILENT = "silent"
    OVER = "over"


def open_attempt(state: RolloutState) -> AttemptState | None:
    """The attempt that may still do something: the last one, unless it is over or the rollout waits for another."""
    if state.status not in (RolloutStatus.PREPARING, RolloutStatus.RUNNING) or not state.attempts:
        return None
    return state.attempts[-1]


def situation_of(state: RolloutState | None, event: RolloutEvent) -> Situation:
    """The situation that ``event`` meets in ``state`` (``None``: no such rollout)."""
    if state is None:
        return Situation.NO_ROLLOUT
    attempt = open_attempt(state)
    if event.kind in ABOUT_AN_ATTEMPT:
        if attempt is not None and attempt.attempt_id == event.attempt_id:
            return Situation.SILENT if attempt.status is AttemptStatus.UNRESPONSIVE else Situation.RUNNING
        if any(known.attempt_id == event.attempt_id for known in state.attempts):
            return Situation.OVER
    if state.status.is_terminal:
        return Situation.FINISHED
    return Situation.WAITING if attempt is None else Situation.BUSY
