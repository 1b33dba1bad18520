"""The fold: a rollout's state and one event give the next state, a result and effects. Pure and deterministic."""

from __future__ import annotations

from typing import Any, NamedTuple

from lightstream.schemas.records import (
    EventKind,
    RolloutEvent,
    RolloutSpec,
    RolloutState,
    RolloutStatus,
    Verdict,
    VerdictOutcome,
)

from ._attempts import Effect, with_last
from .actions import ACTIONS, Rejected
from .limits import ERROR_MESSAGE_CHARACTERS_MAX, Limits
from .queue import queue_time
from .situation import LATEST, open_attempt, situation_of
from .transitions import TRANSITIONS, Action, Rule


class Transition(NamedTuple):
    """The result of one event.

    Attributes:
        action: what happened; ``NOTHING`` and ``REMEMBER_HEARTBEAT`` left the rollout as it was.
        state: the rollout now; ``None`` when there is none.
        record: what ``rollouts`` gets: the state with the event's result, or, for a rollout that does not exist, a
            stub of status ``unknown``. ``None`` for a heartbeat that changes nothing.
        effects: what goes out before ``record``, in this order.
    """

    action: Action
    state: RolloutState | None
    record: RolloutState | None
    effects: tuple[Effect, ...] = ()


MOVED_BY_MAX = 8
"""A writer repeats an event within seconds; in between, few others move the same rollout."""

REPEATED = Rule(Action.NOTHING, VerdictOutcome.IGNORED, "already applied")

BEGINNINGS = frozenset({Action.CREATE_WITH_ATTEMPT, Action.START_NEXT_ATTEMPT, Action.ADD_ATTEMPT})
"""Actions that give the rollout one more attempt."""


def fold(
    state: RolloutState | None,
    event: RolloutEvent,
    source_offset: int,
    limits: Limits,
    logged_unix_nano: int | None = None,
) -> Transition:
    """Apply one event.

    Args:
        state: the rollout before, ``None`` when it was never enqueued. Unchanged.
        event: the event; its own time and the log's are the only clocks, so the same log always gives the same result.
        source_offset: where the event lies in ``rollout-events``.
        limits: what a rollout may ask for at most.
        logged_unix_nano: when the event was written, by the log's clock; ``None`` if the log has none but the event's.
    """
    repeated = state is not None and event.event_id in state.moved_by
    rule = REPEATED if repeated else TRANSITIONS[event.kind][situation_of(state, event)]
    action, outcome, reason = rule.action, rule.outcome, _explained(rule.reason, state, event)
    after, sent = state, list[Effect]()
    try:
        if action in ACTIONS:
            after, sent = ACTIONS[action](state, event, limits)
    except Rejected as rejected:
        action, outcome, reason = Action.NOTHING, rejected.outcome, str(rejected)
    if outcome is None:
        return Transition(action, state, None)
    verdict = Verdict(
        event_id=event.event_id,
        kind=event.kind,
        outcome=outcome,
        reason=reason[:ERROR_MESSAGE_CHARACTERS_MAX],
    )
    if after is None:
        stub = RolloutState(
            rollout=RolloutSpec(rollout_id=event.rollout_id),
            status=RolloutStatus.UNKNOWN,
            updated_unix_nano=event.occurred_unix_nano,
            source_offset=source_offset,
            verdict=verdict,
        )
        return Transition(action, None, stub)
    if action in BEGINNINGS and logged_unix_nano is not None:
        begun = after.attempts[-1].model_copy(update={"begun_unix_nano": logged_unix_nano})
        after = after.model_copy(update={"attempts": with_last(after, begun)})
    changed: dict[str, Any] = {"source_offset": source_offset, "verdict": verdict}
    if state is None:
        enqueued = after.rollout.enqueued_unix_nano
        changed |= {"queue_offset": source_offset, "queue_unix_nano": queue_time(enqueued, logged_unix_nano)}
    if outcome is VerdictOutcome.APPLIED and _moves_again(event):
        changed["moved_by"] = [*after.moved_by, event.event_id][-MOVED_BY_MAX:]
    after = after.model_copy(update=changed)
    return Transition(action, after, after, tuple(sent))


def _moves_again(event: RolloutEvent) -> bool:
    """Whether the same event, folded once more, might do something else to the rollout than the first time."""
    if event.kind is EventKind.ROLLOUT_UPDATED:
        return event.rollout_changes is not None and "status" in event.rollout_changes.fields
    # Reported twice by two life cycles, with a sign of life in between; cancelled, and put back into the queue.
    if event.kind in (EventKind.UNRESPONSIVE, EventKind.CANCELLED):
        return True
    return event.kind is EventKind.ATTEMPT_UPDATED and event.attempt_id == LATEST


def _explained(reason: str, state: RolloutState | None, event: RolloutEvent) -> str:
    """A table's reason with the names filled in."""
    if "{" not in reason:
        return reason
    attempt = None if state is None else open_attempt(state)
    missing = f"Attempt {event.attempt_id} not found for rollout {event.rollout_id}"
    if state is not None and not state.attempts:
        missing = f"No attempts found for rollout {event.rollout_id}"
    return reason.format(
        missing_attempt=missing,
        rollout_id=event.rollout_id,
        attempt_id=event.attempt_id,
        status="unknown" if state is None else state.status.value,
        open_attempt="none" if attempt is None else attempt.attempt_id,
    )
