"""The situation of a rollout from the point of view of one event: the columns of the transition table."""

from __future__ import annotations

from enum import StrEnum

from lightstream.schemas.records import (
    AttemptState,
    AttemptStatus,
    EventKind,
    RolloutEvent,
    RolloutState,
    RolloutStatus,
)

LATEST = "latest"
"""In place of an attempt's id: the last one there is when the event is folded."""

ABOUT_AN_ATTEMPT = frozenset(
    {
        EventKind.ATTEMPT_STARTED,
        EventKind.ATTEMPT_ADDED,
        EventKind.ATTEMPT_UPDATED,
        EventKind.SPAN_ADDED,
        EventKind.HEARTBEAT,
        EventKind.TIMED_OUT,
        EventKind.UNRESPONSIVE,
        EventKind.SUSPECTED,
    }
)
"""Kinds of events that name an attempt."""


class Situation(StrEnum):
    """The situation that an event meets.

    For an event that names an attempt of the rollout: ``PREPARING``, ``RUNNING`` or ``SILENT`` when it is the open one,
    ``SUPERSEDED`` when another took its place before it had ended, ``OVER`` when it has ended or its rollout has. A
    silent attempt's rollout waits for another, but the silent one may come back until that has begun. For any other
    event: ``WAITING`` for an attempt, ``BUSY``, or ``FINISHED``.
    """

    NO_ROLLOUT = "no rollout"
    WAITING = "waiting"
    BUSY = "busy"
    FINISHED = "finished"
    PREPARING = "preparing"
    RUNNING = "running"
    SILENT = "silent"
    SUPERSEDED = "superseded"
    OVER = "over"


def open_attempt(state: RolloutState) -> AttemptState | None:
    """The attempt that may still do something: the last one, unless it is closed or the rollout is over."""
    if state.status.is_terminal or not state.attempts or state.attempts[-1].closed:
        return None
    return state.attempts[-1]


def is_waiting(state: RolloutState) -> bool:
    """Whether the rollout is in the queue."""
    return state.status in (RolloutStatus.QUEUING, RolloutStatus.REQUEUING)


def named_attempt(state: RolloutState, event: RolloutEvent) -> AttemptState | None:
    """The attempt that the event is about, if the rollout has it."""
    if event.attempt_id == LATEST and event.kind is EventKind.ATTEMPT_UPDATED:
        return state.attempts[-1] if state.attempts else None
    return next((known for known in state.attempts if known.attempt_id == event.attempt_id), None)


def situation_of(state: RolloutState | None, event: RolloutEvent) -> Situation:
    """The situation that ``event`` meets in ``state`` (``None``: no such rollout)."""
    if state is None:
        return Situation.NO_ROLLOUT
    named = named_attempt(state, event) if event.kind in ABOUT_AN_ATTEMPT else None
    if named is not None:
        if named is open_attempt(state):
            return _OF_OPEN.get(named.status, Situation.RUNNING)
        over = state.status.is_terminal or named.ended_unix_nano is not None
        return Situation.OVER if over else Situation.SUPERSEDED
    if state.status.is_terminal:
        return Situation.FINISHED
    return Situation.WAITING if is_waiting(state) else Situation.BUSY


_OF_OPEN = {AttemptStatus.PREPARING: Situation.PREPARING, AttemptStatus.UNRESPONSIVE: Situation.SILENT}
