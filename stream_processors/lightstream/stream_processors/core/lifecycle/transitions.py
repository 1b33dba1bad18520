"""The transition table: for every kind of fact and every situation it can meet, what happens."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from lightstream.schemas.records import EventKind, VerdictOutcome

from .situation import Situation

__all__ = ["TRANSITIONS", "Action", "Rule"]


class Action(StrEnum):
    """What a fact does to the rollout. All but ``NOTHING`` and ``LISTEN`` may change its state."""

    NOTHING = "nothing"
    LISTEN = "listen"  # a sign of life: remembered, not written
    ENQUEUE = "enqueue"
    CREATE = "create"  # a rollout with its first attempt
    START = "start"
    ADD = "add"  # one more attempt, past the queue
    BEAT = "beat"  # a sign of life that is written: preparing and unresponsive become running
    HEAR = "hear"  # a sign of life of an attempt that decides nothing any more, but has not ended
    COUNT = "count"  # sequence numbers of spans
    NOTE = "note"  # what is said of an attempt that decides nothing any more
    CHANGE = "change"  # what is said of the open attempt, its end included
    TIME_OUT = "time out"
    SILENCE = "silence"
    UPDATE = "update"  # what is said of a rollout, its status included
    AMEND = "amend"  # what is said of a finished rollout: all but its status
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class Rule:
    """One cell of the table.

    Attributes:
        action: what is done.
        outcome: the verdict's word; ``None`` where there is no verdict (heartbeats).
        reason: for the verdict; may name ``{rollout_id}``, ``{status}``, ``{attempt_id}``,
            ``{open_attempt}``, ``{missing_attempt}``.
    """

    action: Action
    outcome: VerdictOutcome | None
    reason: str = ""


def _apply(action: Action) -> Rule:
    return Rule(action, VerdictOutcome.APPLIED)


def _ignore(reason: str) -> Rule:
    """What the fact says already holds, or no longer matters. Its writer has nothing to do."""
    return Rule(Action.NOTHING, VerdictOutcome.IGNORED, reason)


def _refuse(reason: str) -> Rule:
    """The fact contradicts what happened. Its writer must not act on it."""
    return Rule(Action.NOTHING, VerdictOutcome.REFUSED, reason)


def _miss(reason: str) -> Rule:
    """What the fact is about does not exist."""
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
_UNKNOWN = _refuse("this version does not know such a fact")

_S = Situation

TRANSITIONS: dict[EventKind, dict[Situation, Rule]] = {
    EventKind.ENQUEUED: {
        _S.NO_ROLLOUT: _apply(Action.ENQUEUE),
        _S.WAITING: _ENQUEUED,
        _S.BUSY: _ENQUEUED,
        _S.FINISHED: _ENQUEUED,
    },
    EventKind.ROLLOUT_STARTED: {
        _S.NO_ROLLOUT: _apply(Action.CREATE),
        _S.WAITING: _EXISTS,
        _S.BUSY: _EXISTS,
        _S.FINISHED: _EXISTS,
    },
    EventKind.ROLLOUT_UPDATED: {
        _S.NO_ROLLOUT: _NOT_FOUND,
        _S.WAITING: _apply(Action.UPDATE),
        _S.BUSY: _apply(Action.UPDATE),
        _S.FINISHED: _apply(Action.AMEND),
    },
    EventKind.ATTEMPT_STARTED: {
        _S.NO_ROLLOUT: _NOT_FOUND,
        _S.WAITING: _apply(Action.START),
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
        _S.WAITING: _apply(Action.ADD),
        _S.BUSY: _apply(Action.ADD),
        _S.FINISHED: _refuse("rollout {rollout_id} is already {status}"),
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
        _S.PREPARING: _apply(Action.CHANGE),
        _S.RUNNING: _apply(Action.CHANGE),
        _S.SILENT: _apply(Action.CHANGE),
        _S.SUPERSEDED: _apply(Action.NOTE),
        _S.OVER: _apply(Action.NOTE),
    },
    EventKind.SPAN_ADDED: {
        _S.NO_ROLLOUT: _NOT_FOUND,
        _S.WAITING: _NO_SUCH_ATTEMPT,
        _S.BUSY: _NO_SUCH_ATTEMPT,
        _S.FINISHED: _NO_SUCH_ATTEMPT,
        _S.PREPARING: _apply(Action.BEAT),
        _S.RUNNING: _apply(Action.BEAT),
        _S.SILENT: _apply(Action.BEAT),
        _S.SUPERSEDED: _apply(Action.HEAR),
        _S.OVER: Rule(Action.COUNT, VerdictOutcome.IGNORED, _OVER.reason),  # too late to be a sign of life
    },
    EventKind.NUMBERS_TAKEN: {
        _S.NO_ROLLOUT: _NOT_FOUND,
        _S.WAITING: _apply(Action.COUNT),
        _S.BUSY: _apply(Action.COUNT),
        _S.FINISHED: _apply(Action.COUNT),
    },
    EventKind.HEARTBEAT: {
        _S.NO_ROLLOUT: _SILENTLY,
        _S.WAITING: _SILENTLY,
        _S.BUSY: _SILENTLY,
        _S.FINISHED: _SILENTLY,
        _S.PREPARING: _apply(Action.BEAT),
        _S.RUNNING: Rule(Action.LISTEN, None),
        _S.SILENT: _apply(Action.BEAT),
        _S.SUPERSEDED: _SILENTLY,
        _S.OVER: _SILENTLY,
    },
    EventKind.TIMED_OUT: {
        _S.NO_ROLLOUT: _NOT_FOUND,
        _S.WAITING: _NO_SUCH_ATTEMPT,
        _S.BUSY: _NO_SUCH_ATTEMPT,
        _S.FINISHED: _FINISHED,
        _S.PREPARING: _apply(Action.TIME_OUT),
        _S.RUNNING: _apply(Action.TIME_OUT),
        _S.SILENT: _ALREADY_SILENT,
        _S.SUPERSEDED: _OVER,
        _S.OVER: _OVER,
    },
    EventKind.UNRESPONSIVE: {
        _S.NO_ROLLOUT: _NOT_FOUND,
        _S.WAITING: _NO_SUCH_ATTEMPT,
        _S.BUSY: _NO_SUCH_ATTEMPT,
        _S.FINISHED: _FINISHED,
        _S.PREPARING: _apply(Action.SILENCE),
        _S.RUNNING: _apply(Action.SILENCE),
        _S.SILENT: _ALREADY_SILENT,
        _S.SUPERSEDED: _OVER,
        _S.OVER: _OVER,
    },
    EventKind.SUSPECTED: dict.fromkeys(Situation, _SILENTLY),
    EventKind.CANCELLED: {
        _S.NO_ROLLOUT: _NOT_FOUND,
        _S.WAITING: _apply(Action.CANCEL),
        _S.BUSY: _apply(Action.CANCEL),
        _S.FINISHED: _FINISHED,
    },
    EventKind.UNKNOWN: {
        _S.NO_ROLLOUT: _NOT_FOUND,
        _S.WAITING: _UNKNOWN,
        _S.BUSY: _UNKNOWN,
        _S.FINISHED: _UNKNOWN,
    },
}
"""Kind of fact -> situation -> rule. Total: a test goes through every pair that can occur."""
