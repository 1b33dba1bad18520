"""The transition table: for every kind of fact and every situation it can meet, what happens."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from lightstream.schemas.records import EventKind, VerdictOutcome

from .situation import Situation

__all__ = ["TRANSITIONS", "Action", "Rule"]


class Action(Enum):
    """What a fact does to the rollout. All but ``NOTHING`` and ``LISTEN`` change its state."""

    NOTHING = "nothing"
    LISTEN = "listen"  # a sign of life: remembered, not written
    ENQUEUE = "enqueue"
    START = "start"
    REVIVE = "revive"
    END = "end"
    TIME_OUT = "time out"
    SILENCE = "silence"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class Rule:
    """One cell of the table.

    Attributes:
        action: what is done.
        outcome: the verdict's word; ``None`` where there is no verdict (heartbeats).
        reason: for the verdict; may name ``{rollout_id}``, ``{status}``, ``{attempt_id}``, ``{open_attempt}``.
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


_SILENTLY = Rule(Action.NOTHING, None)
_NOT_FOUND = _refuse("Rollout {rollout_id} not found")
_FINISHED = _ignore("rollout {rollout_id} is already {status}")
_NO_SUCH_ATTEMPT = _refuse("rollout {rollout_id} has no attempt {attempt_id}")
_OVER = _ignore("attempt {attempt_id} is over, and rollout {rollout_id} is {status}")
_ENQUEUED = _ignore("already enqueued")
_STARTED = _ignore("attempt {attempt_id} has already started")
_UNKNOWN = _refuse("this version does not know such a fact")

_S = Situation

TRANSITIONS: dict[EventKind, dict[Situation, Rule]] = {
    EventKind.ENQUEUED: {
        _S.NO_ROLLOUT: _apply(Action.ENQUEUE),
        _S.WAITING: _ENQUEUED,
        _S.BUSY: _ENQUEUED,
        _S.FINISHED: _ENQUEUED,
    },
    EventKind.ATTEMPT_STARTED: {
        _S.NO_ROLLOUT: _NOT_FOUND,
        _S.WAITING: _apply(Action.START),
        _S.BUSY: _refuse("attempt {open_attempt} of rollout {rollout_id} is already running"),
        _S.FINISHED: _refuse("rollout {rollout_id} is already {status}"),
        _S.RUNNING: _STARTED,
        _S.SILENT: _STARTED,
        _S.OVER: _refuse("attempt {attempt_id} is over, and rollout {rollout_id} is {status}"),
    },
    EventKind.HEARTBEAT: {
        _S.NO_ROLLOUT: _SILENTLY,
        _S.WAITING: _SILENTLY,
        _S.BUSY: _SILENTLY,
        _S.FINISHED: _SILENTLY,
        _S.RUNNING: Rule(Action.LISTEN, None),
        _S.SILENT: _apply(Action.REVIVE),
        _S.OVER: _SILENTLY,
    },
    EventKind.ATTEMPT_ENDED: {
        _S.NO_ROLLOUT: _NOT_FOUND,
        _S.WAITING: _NO_SUCH_ATTEMPT,
        _S.BUSY: _NO_SUCH_ATTEMPT,
        _S.FINISHED: _FINISHED,
        _S.RUNNING: _apply(Action.END),
        _S.SILENT: _apply(Action.END),
        _S.OVER: _OVER,
    },
    EventKind.TIMED_OUT: {
        _S.NO_ROLLOUT: _NOT_FOUND,
        _S.WAITING: _NO_SUCH_ATTEMPT,
        _S.BUSY: _NO_SUCH_ATTEMPT,
        _S.FINISHED: _FINISHED,
        _S.RUNNING: _apply(Action.TIME_OUT),
        _S.SILENT: _apply(Action.TIME_OUT),
        _S.OVER: _OVER,
    },
    EventKind.UNRESPONSIVE: {
        _S.NO_ROLLOUT: _NOT_FOUND,
        _S.WAITING: _NO_SUCH_ATTEMPT,
        _S.BUSY: _NO_SUCH_ATTEMPT,
        _S.FINISHED: _FINISHED,
        _S.RUNNING: _apply(Action.SILENCE),
        _S.SILENT: _ignore("attempt {attempt_id} already counts as unresponsive"),
        _S.OVER: _OVER,
    },
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
