"""The transition table: the effect of every kind of event in every situation."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from lightstream.schemas.records import EventKind, VerdictOutcome

from .situation import Situation


class Action(StrEnum):
    """The action of an event on the rollout. All but ``NOTHING`` and ``REMEMBER_HEARTBEAT`` may change its state."""

    NOTHING = "nothing"
    ENQUEUE_ROLLOUT = "enqueue rollout"
    CREATE_WITH_ATTEMPT = "create with attempt"
    """A rollout and its first attempt together."""
    UPDATE_ROLLOUT = "update rollout"
    """Replaces fields of a rollout that is not over, its status included."""
    UPDATE_FINISHED_ROLLOUT = "update finished rollout"
    """Replaces fields of a rollout that is over, and may put it back into the queue; no other status is taken."""
    CANCEL_ROLLOUT = "cancel rollout"
    START_NEXT_ATTEMPT = "start next attempt"
    """The one that the queue is for."""
    ADD_ATTEMPT = "add attempt"
    """One more, past the queue; also of a rollout that is over, which then is not."""
    UPDATE_OPEN_ATTEMPT = "update open attempt"
    """Replaces its fields, its end included."""
    UPDATE_PAST_ATTEMPT = "update past attempt"
    """Replaces fields of an attempt that no longer decides about its rollout."""
    REMEMBER_HEARTBEAT = "remember heartbeat"
    """Of an attempt that runs: it moves the deadline in memory, and nothing is written."""
    SIGN_OF_LIFE_OF_OPEN_ATTEMPT = "sign of life of open attempt"
    """One that is written: preparing and unresponsive become running."""
    SIGN_OF_LIFE_OF_SUPERSEDED_ATTEMPT = "sign of life of superseded attempt"
    """It has not ended, but no longer decides about its rollout, which stays as it is."""
    COUNT_SPAN_NUMBERS = "count span numbers"
    """Sequence numbers are taken, or a span brought one along; nothing else changes."""
    TIME_OUT_ATTEMPT = "time out attempt"
    MARK_UNRESPONSIVE = "mark unresponsive"
    """The open attempt has been silent for too long."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One cell of the table.

    Attributes:
        action: what is done.
        outcome: of the event; ``None`` where it has no result (heartbeats).
        reason: for the outcome; may name ``{rollout_id}``, ``{status}``, ``{attempt_id}``,
            ``{open_attempt}``, ``{missing_attempt}``.
    """

    action: Action
    outcome: VerdictOutcome | None
    reason: str = ""


def _apply(action: Action) -> Rule:
    return Rule(action, VerdictOutcome.APPLIED)


def _ignore(reason: str) -> Rule:
    """The event's content already holds, or no longer matters. Its writer has nothing to do."""
    return Rule(Action.NOTHING, VerdictOutcome.IGNORED, reason)


def _refuse(reason: str) -> Rule:
    """The event contradicts what happened. Its writer must not act on it."""
    return Rule(Action.NOTHING, VerdictOutcome.REFUSED, reason)


def _miss(reason: str) -> Rule:
    """The event's subject does not exist."""
    return Rule(Action.NOTHING, VerdictOutcome.NOT_FOUND, reason)


_SILENTLY = Rule(Action.NOTHING, None)
_NOT_FOUND = _miss("Rollout {rollout_id} not found")
_FINISHED = _ignore("rollout {rollout_id} is already {status}")
_NO_SUCH_ATTEMPT = _miss("Attempt {attempt_id} not found for rollout {rollout_id}")
_NO_ATTEMPT_TO_UPDATE = _miss("{missing_attempt}")
_OVER = _ignore("attempt {attempt_id} is over, and rollout {rollout_id} is {status}")
_ENQUEUED = _ignore("already enqueued")
_EXISTS = _refuse("Rollout {rollout_id} exists already")
_STARTED = _ignore("attempt {attempt_id} has already started")
_ALREADY_SILENT = _ignore("attempt {attempt_id} already counts as unresponsive")
_UNKNOWN = _refuse("this version does not know such an event")

_S = Situation

TRANSITIONS: dict[EventKind, dict[Situation, Rule]] = {
    EventKind.ENQUEUED: {
        _S.NO_ROLLOUT: _apply(Action.ENQUEUE_ROLLOUT),
        _S.WAITING: _ENQUEUED,
        _S.BUSY: _ENQUEUED,
        _S.FINISHED: _ENQUEUED,
    },
    EventKind.ROLLOUT_STARTED: {
        _S.NO_ROLLOUT: _apply(Action.CREATE_WITH_ATTEMPT),
        _S.WAITING: _EXISTS,
        _S.BUSY: _EXISTS,
        _S.FINISHED: _EXISTS,
    },
    EventKind.ROLLOUT_UPDATED: {
        _S.NO_ROLLOUT: _NOT_FOUND,
        _S.WAITING: _apply(Action.UPDATE_ROLLOUT),
        _S.BUSY: _apply(Action.UPDATE_ROLLOUT),
        _S.FINISHED: _apply(Action.UPDATE_FINISHED_ROLLOUT),
    },
    EventKind.ATTEMPT_STARTED: {
        _S.NO_ROLLOUT: _NOT_FOUND,
        _S.WAITING: _apply(Action.START_NEXT_ATTEMPT),
        _S.BUSY: _refuse("attempt {open_attempt} of rollout {rollout_id} is already running"),
        _S.FINISHED: _refuse("rollout {rollout_id} is already {status}"),
        _S.PREPARING: _STARTED,
        _S.RUNNING: _STARTED,
        _S.SILENT: _STARTED,
        _S.SUPERSEDED: _refuse("attempt {attempt_id} was superseded"),
        _S.OVER: _refuse("attempt {attempt_id} is over, and rollout {rollout_id} is {status}"),
    },
    EventKind.ATTEMPT_ADDED: {
        _S.NO_ROLLOUT: _NOT_FOUND,
        _S.WAITING: _apply(Action.ADD_ATTEMPT),
        _S.BUSY: _apply(Action.ADD_ATTEMPT),
        _S.FINISHED: _apply(Action.ADD_ATTEMPT),
        _S.PREPARING: _STARTED,
        _S.RUNNING: _STARTED,
        _S.SILENT: _STARTED,
        _S.SUPERSEDED: _refuse("attempt {attempt_id} was superseded"),
        _S.OVER: _refuse("attempt {attempt_id} is over, and rollout {rollout_id} is {status}"),
    },
    EventKind.ATTEMPT_UPDATED: {
        _S.NO_ROLLOUT: _NOT_FOUND,
        _S.WAITING: _NO_ATTEMPT_TO_UPDATE,
        _S.BUSY: _NO_ATTEMPT_TO_UPDATE,
        _S.FINISHED: _NO_ATTEMPT_TO_UPDATE,
        _S.PREPARING: _apply(Action.UPDATE_OPEN_ATTEMPT),
        _S.RUNNING: _apply(Action.UPDATE_OPEN_ATTEMPT),
        _S.SILENT: _apply(Action.UPDATE_OPEN_ATTEMPT),
        _S.SUPERSEDED: _apply(Action.UPDATE_PAST_ATTEMPT),
        _S.OVER: _apply(Action.UPDATE_PAST_ATTEMPT),
    },
    EventKind.SPAN_ADDED: {
        _S.NO_ROLLOUT: _NOT_FOUND,
        _S.WAITING: _NO_SUCH_ATTEMPT,
        _S.BUSY: _NO_SUCH_ATTEMPT,
        _S.FINISHED: _NO_SUCH_ATTEMPT,
        _S.PREPARING: _apply(Action.SIGN_OF_LIFE_OF_OPEN_ATTEMPT),
        _S.RUNNING: _apply(Action.SIGN_OF_LIFE_OF_OPEN_ATTEMPT),
        _S.SILENT: _apply(Action.SIGN_OF_LIFE_OF_OPEN_ATTEMPT),
        _S.SUPERSEDED: _apply(Action.SIGN_OF_LIFE_OF_SUPERSEDED_ATTEMPT),
        _S.OVER: Rule(Action.COUNT_SPAN_NUMBERS, VerdictOutcome.IGNORED, _OVER.reason),  # too late to be a sign of life
    },
    EventKind.NUMBERS_TAKEN: {
        _S.NO_ROLLOUT: _NOT_FOUND,
        _S.WAITING: _apply(Action.COUNT_SPAN_NUMBERS),
        _S.BUSY: _apply(Action.COUNT_SPAN_NUMBERS),
        _S.FINISHED: _apply(Action.COUNT_SPAN_NUMBERS),
    },
    EventKind.HEARTBEAT: {
        _S.NO_ROLLOUT: _SILENTLY,
        _S.WAITING: _SILENTLY,
        _S.BUSY: _SILENTLY,
        _S.FINISHED: _SILENTLY,
        _S.PREPARING: _apply(Action.SIGN_OF_LIFE_OF_OPEN_ATTEMPT),
        _S.RUNNING: Rule(Action.REMEMBER_HEARTBEAT, None),
        _S.SILENT: _apply(Action.SIGN_OF_LIFE_OF_OPEN_ATTEMPT),
        _S.SUPERSEDED: _SILENTLY,
        _S.OVER: _SILENTLY,
    },
    EventKind.TIMED_OUT: {
        _S.NO_ROLLOUT: _NOT_FOUND,
        _S.WAITING: _NO_SUCH_ATTEMPT,
        _S.BUSY: _NO_SUCH_ATTEMPT,
        _S.FINISHED: _FINISHED,
        _S.PREPARING: _apply(Action.TIME_OUT_ATTEMPT),
        _S.RUNNING: _apply(Action.TIME_OUT_ATTEMPT),
        _S.SILENT: _ALREADY_SILENT,
        _S.SUPERSEDED: _OVER,
        _S.OVER: _OVER,
    },
    EventKind.UNRESPONSIVE: {
        _S.NO_ROLLOUT: _NOT_FOUND,
        _S.WAITING: _NO_SUCH_ATTEMPT,
        _S.BUSY: _NO_SUCH_ATTEMPT,
        _S.FINISHED: _FINISHED,
        _S.PREPARING: _apply(Action.MARK_UNRESPONSIVE),
        _S.RUNNING: _apply(Action.MARK_UNRESPONSIVE),
        _S.SILENT: _ALREADY_SILENT,
        _S.SUPERSEDED: _OVER,
        _S.OVER: _OVER,
    },
    EventKind.SUSPECTED: dict.fromkeys(Situation, _SILENTLY),
    EventKind.CANCELLED: {
        _S.NO_ROLLOUT: _NOT_FOUND,
        _S.WAITING: _apply(Action.CANCEL_ROLLOUT),
        _S.BUSY: _apply(Action.CANCEL_ROLLOUT),
        _S.FINISHED: _FINISHED,
    },
    EventKind.UNKNOWN: {
        _S.NO_ROLLOUT: _NOT_FOUND,
        _S.WAITING: _UNKNOWN,
        _S.BUSY: _UNKNOWN,
        _S.FINISHED: _UNKNOWN,
    },
}
"""Kind of event -> situation -> rule. Total: a test goes through every pair that can occur."""
