"""The actions of the transition table. Pure: a state and an event give a state and effects."""

from __future__ import annotations

from collections.abc import Callable

from lightstream.runtime.clock import NANOS_PER_SECOND
from lightstream.schemas.both_ends import both_ends
from lightstream.schemas.records import (
    AttemptChanges,
    AttemptState,
    AttemptStatus,
    EventKind,
    RolloutEvent,
    RolloutState,
    RolloutStatus,
    VerdictOutcome,
)

from . import _attempts
from ._attempts import CANCELLED_ERROR_TYPE, Effect, may_retry, moved, with_last
from .limits import ATTEMPTS_METADATA_BYTES_MAX, ERROR_MESSAGE_CHARACTERS_MAX, Limits, Rejected, changed_spec, new_state
from .situation import is_waiting, named_attempt, open_attempt
from .transitions import Action

__all__ = ["ACTIONS", "Rejected"]

SPAN_SEQUENCE_MAX = 2**53
"""Above it not every number is a JSON number."""

Result = tuple[RolloutState, list[Effect]]


def _enqueue_rollout(state: RolloutState | None, event: RolloutEvent, limits: Limits) -> Result:
    """A new rollout, in the queue."""
    return new_state(event, RolloutStatus.QUEUING, limits), []


def _create_with_attempt(state: RolloutState | None, event: RolloutEvent, limits: Limits) -> Result:
    """A new rollout whose first attempt begins at once."""
    return _begun(new_state(event, RolloutStatus.PREPARING, limits), event)


def _start_next_attempt(state: RolloutState | None, event: RolloutEvent, limits: Limits) -> Result:
    """The attempt for which the rollout waits in the queue."""
    state = _known(state)
    sequence = len(state.attempts) + 1
    if event.attempt_sequence != sequence:
        raise Rejected(f"rollout {event.rollout_id} waits for attempt {sequence}, not {event.attempt_sequence}")
    return _begun(state, event)


def _add_attempt(state: RolloutState | None, event: RolloutEvent, limits: Limits) -> Result:
    """One more attempt, past the queue and whatever the retries, up to the limit."""
    state = _known(state)
    if broken := limits.broken_rule(state.rollout, len(state.attempts) + 1):
        raise Rejected(broken)
    return _begun(state, event)


def _sign_of_life_of_open_attempt(state: RolloutState | None, event: RolloutEvent, limits: Limits) -> Result:
    """The open attempt runs, whatever it was before, and so does its rollout."""
    state = _known(state)
    attempt = _attempts.heard(_open(state), event.occurred_unix_nano)
    state = _counted(state, event)
    return moved(state, event, RolloutStatus.RUNNING, with_last(state, attempt)), []


def _sign_of_life_of_superseded_attempt(state: RolloutState | None, event: RolloutEvent, limits: Limits) -> Result:
    """The attempt was heard of; the rollout goes its way without it."""
    state = _known(state)
    now = event.occurred_unix_nano
    attempt = _attempts.heard(_named(state, event), now)
    state = _counted(state, event)
    return state.model_copy(update={"attempts": _attempts.with_known(state, attempt), "updated_unix_nano": now}), []


def _count_span_numbers(state: RolloutState | None, event: RolloutEvent, limits: Limits) -> Result:
    """Only the numbers of spans go on."""
    return _counted(_known(state), event), []


def _time_out_attempt(state: RolloutState | None, event: RolloutEvent, limits: Limits) -> Result:
    """The open attempt took too long; unless its rollout was put back in the queue meanwhile."""
    state = _watched(state)
    return _timed_out(state, event, _open(state), limits)


def _mark_unresponsive(state: RolloutState | None, event: RolloutEvent, limits: Limits) -> Result:
    """The open attempt fell silent; unless its rollout was put back in the queue meanwhile."""
    state = _watched(state)
    return _silent(state, event, _open(state))


def _update_open_attempt(state: RolloutState | None, event: RolloutEvent, limits: Limits) -> Result:
    """Replace fields of the open attempt; its status decides that of the rollout."""
    state = _known(state)
    changes = _changes(event)
    attempt = _attempts.noted(_open(state), changes)
    _check_metadata(state, attempt)
    status = changes.status
    if status is AttemptStatus.SUCCEEDED or status is AttemptStatus.FAILED:
        return _attempts.close(state, event, attempt, status, event.error_type, event.error_message)
    if status is AttemptStatus.TIMEOUT:
        return _timed_out(state, event, attempt, limits)
    if status is AttemptStatus.UNRESPONSIVE and attempt.status is not AttemptStatus.UNRESPONSIVE:
        return _silent(state, event, attempt)
    after = state.status
    if status is AttemptStatus.PREPARING or status is AttemptStatus.RUNNING:
        attempt = _attempts.going_on(attempt, status)
        after = RolloutStatus(status.value)
    return moved(state, event, after, with_last(state, attempt)), []


def _update_past_attempt(state: RolloutState | None, event: RolloutEvent, limits: Limits) -> Result:
    """Replace fields of an attempt that no longer decides; its status only while it has not ended."""
    state = _known(state)
    attempt = _named(state, event)
    changes = _changes(event)
    if changes == AttemptChanges(status=attempt.status):
        known = f"attempt {attempt.attempt_id} is already {attempt.status.value}"
        raise Rejected(known, VerdictOutcome.IGNORED)
    if changes.status not in (None, attempt.status):
        if state.status.is_terminal or attempt.ended_unix_nano is not None:
            over = f"attempt {attempt.attempt_id} is over, and rollout {event.rollout_id} is {state.status.value}"
            raise Rejected(over, VerdictOutcome.IGNORED)
        now = event.occurred_unix_nano if changes.status.is_terminal else None
        attempt = attempt.model_copy(update={"status": changes.status, "ended_unix_nano": now})
    attempt = _attempts.noted(attempt, changes)
    _check_metadata(state, attempt)
    attempts = _attempts.with_known(state, attempt)
    return state.model_copy(update={"attempts": attempts, "updated_unix_nano": event.occurred_unix_nano}), []


def _update_rollout(state: RolloutState | None, event: RolloutEvent, limits: Limits) -> Result:
    """Replace fields of a rollout that is not over; its status moves it, or ends it."""
    state = _named_is_open(_known(state), event)
    spec, status = changed_spec(state, event, limits)
    state = state.model_copy(update={"rollout": spec, "updated_unix_nano": event.occurred_unix_nano})
    if status is None or status is state.status:
        return state, []
    if status is RolloutStatus.CANCELLED:
        return _finished(state, event, status, AttemptStatus.FAILED, CANCELLED_ERROR_TYPE, "cancelled")
    if status is RolloutStatus.FAILED:
        return _finished(state, event, status, AttemptStatus.FAILED, "Failed", "the rollout was reported as failed")
    if status is RolloutStatus.SUCCEEDED:
        return _finished(state, event, status, AttemptStatus.SUCCEEDED, None, None)
    if status in (RolloutStatus.QUEUING, RolloutStatus.REQUEUING):
        # The open attempt stays open: whichever comes first goes on, another attempt or a sign of life of this one.
        return moved(state, event, status, state.attempts), []
    attempts = state.attempts
    silent = open_attempt(state)
    if silent is not None and silent.status is AttemptStatus.UNRESPONSIVE:
        attempts = with_last(state, _attempts.going_on(silent, AttemptStatus.RUNNING))
    return moved(state, event, status, attempts), []


def _update_finished_rollout(state: RolloutState | None, event: RolloutEvent, limits: Limits) -> Result:
    """Replace fields of a rollout that is over, which keeps its status or goes back into the queue."""
    state = _named_is_open(_known(state), event)
    spec, status = changed_spec(state, event, limits)
    changed = state.model_copy(update={"rollout": spec, "updated_unix_nano": event.occurred_unix_nano})
    if status is None or status is state.status:
        return changed, []
    if status not in (RolloutStatus.QUEUING, RolloutStatus.REQUEUING):
        over = f"rollout {event.rollout_id} is already {state.status.value}"
        raise Rejected(f"{over}; it cannot become {status.value}, only go back into the queue (requeuing)")
    if broken := limits.broken_rule(spec, len(state.attempts) + 1):
        raise Rejected(broken)
    return moved(changed, event, status, changed.attempts), []


def _cancel_rollout(state: RolloutState | None, event: RolloutEvent, limits: Limits) -> Result:
    """End the rollout as cancelled, and its open attempt with it."""
    reason = both_ends(event.reason or "cancelled", ERROR_MESSAGE_CHARACTERS_MAX)
    return _finished(_known(state), event, RolloutStatus.CANCELLED, AttemptStatus.FAILED, CANCELLED_ERROR_TYPE, reason)


ACTIONS: dict[Action, Callable[[RolloutState | None, RolloutEvent, Limits], Result]] = {
    Action.ENQUEUE_ROLLOUT: _enqueue_rollout,
    Action.CREATE_WITH_ATTEMPT: _create_with_attempt,
    Action.START_NEXT_ATTEMPT: _start_next_attempt,
    Action.ADD_ATTEMPT: _add_attempt,
    Action.SIGN_OF_LIFE_OF_OPEN_ATTEMPT: _sign_of_life_of_open_attempt,
    Action.SIGN_OF_LIFE_OF_SUPERSEDED_ATTEMPT: _sign_of_life_of_superseded_attempt,
    Action.COUNT_SPAN_NUMBERS: _count_span_numbers,
    Action.TIME_OUT_ATTEMPT: _time_out_attempt,
    Action.MARK_UNRESPONSIVE: _mark_unresponsive,
    Action.UPDATE_OPEN_ATTEMPT: _update_open_attempt,
    Action.UPDATE_PAST_ATTEMPT: _update_past_attempt,
    Action.UPDATE_ROLLOUT: _update_rollout,
    Action.UPDATE_FINISHED_ROLLOUT: _update_finished_rollout,
    Action.CANCEL_ROLLOUT: _cancel_rollout,
}


def _begun(state: RolloutState, event: RolloutEvent) -> Result:
    """One more attempt, in place of the open one if there is one."""
    if not event.attempt_id:
        raise Rejected(f"an event `{event.kind.value}` needs an attempt_id")
    attempts, lost = _attempts.without_open(state, event)
    attempt = _attempts.new(state, event)
    after = moved(state, event, RolloutStatus.PREPARING, [*attempts, attempt])
    closing = [] if lost is None else [_attempts.superseded(after, lost, event.occurred_unix_nano)]
    return after, [*closing, _attempts.opened(after, attempt)]


def _timed_out(state: RolloutState, event: RolloutEvent, attempt: AttemptState, limits: Limits) -> Result:
    timeout_s = limits.timeout_nanos(state.rollout.config) / NANOS_PER_SECOND
    error = event.reason or f"not over {timeout_s:g} s after its start"
    return _attempts.close(state, event, attempt, AttemptStatus.TIMEOUT, "Timeout", error)


def _silent(state: RolloutState, event: RolloutEvent, attempt: AttemptState) -> Result:
    """With a retry left the rollout waits for it, and whichever comes first goes on: the retry or a sign of life."""
    if not may_retry(state, AttemptStatus.UNRESPONSIVE):
        error = event.reason or event.error_message
        return _attempts.close(state, event, attempt, AttemptStatus.UNRESPONSIVE, "Unresponsive", error)
    attempt = attempt.model_copy(update={"status": AttemptStatus.UNRESPONSIVE, "error_type": "Unresponsive"})
    return moved(state, event, RolloutStatus.REQUEUING, with_last(state, attempt)), []


def _finished(
    state: RolloutState,
    event: RolloutEvent,
    status: RolloutStatus,
    attempt_status: AttemptStatus,
    error_type: str | None,
    reason: str | None,
) -> Result:
    """End the rollout on request, and its open attempt with it."""
    now = event.occurred_unix_nano
    running = open_attempt(state)
    if running is None:
        after = moved(state, event, status, state.attempts)
        none = _attempts.stand_in(after, attempt_status, now, error_type, reason)
        return after, [_attempts.opened(after, none), _attempts.closed(after, none, now)]
    over = _attempts.ended(running, attempt_status, now, error_type, reason)
    after = moved(state, event, status, with_last(state, over))
    return after, [_attempts.closed(after, over, now)]


def _counted(state: RolloutState, event: RolloutEvent) -> RolloutState:
    number = event.span_sequence or 0
    if number < 0:
        raise Rejected(f"the sequence number of a span is {number}; it must be at least 0")
    taken = state.span_sequence + number if event.kind is EventKind.NUMBERS_TAKEN else max(state.span_sequence, number)
    if taken > SPAN_SEQUENCE_MAX:
        raise Rejected(f"the sequence number of a span is {taken:,}; at most {SPAN_SEQUENCE_MAX:,} is allowed")
    return state.model_copy(update={"span_sequence": taken})


def _changes(event: RolloutEvent) -> AttemptChanges:
    if event.attempt_changes is None or event.attempt_changes.status is AttemptStatus.UNKNOWN:
        raise Rejected("an event `attempt_updated` needs changes that this version knows")
    return event.attempt_changes


def _check_metadata(state: RolloutState, attempt: AttemptState) -> None:
    others = [known for known in state.attempts if known.attempt_id != attempt.attempt_id]
    size = sum(len((known.metadata_json or "").encode()) for known in (*others, attempt))
    if size > ATTEMPTS_METADATA_BYTES_MAX:
        raise Rejected(
            f"the attempts' metadata would have {size:,} bytes together; at most {ATTEMPTS_METADATA_BYTES_MAX:,} fit"
        )


def _known(state: RolloutState | None) -> RolloutState:
    if state is None:
        raise AssertionError("the table has no such action for an unknown rollout")
    return state


def _named_is_open(state: RolloutState, event: RolloutEvent) -> RolloutState:
    """The state; an event that names an attempt is void once that attempt is not the open one."""
    attempt = open_attempt(state)
    if event.attempt_id is not None and (attempt is None or attempt.attempt_id != event.attempt_id):
        over = f"attempt {event.attempt_id} of rollout {event.rollout_id} is no longer open"
        raise Rejected(over, VerdictOutcome.IGNORED)
    return state


def _named(state: RolloutState, event: RolloutEvent) -> AttemptState:
    attempt = named_attempt(state, event)
    if attempt is None:
        raise AssertionError("the table has such an action only for an attempt of the rollout")
    return attempt


def _watched(state: RolloutState | None) -> RolloutState:
    state = _known(state)
    if is_waiting(state):  # since the deadline was reported
        waits = f"rollout {state.rollout.rollout_id} waits for another attempt already"
        raise Rejected(waits, VerdictOutcome.IGNORED)
    return state


def _open(state: RolloutState) -> AttemptState:
    attempt = open_attempt(state)
    if attempt is None:
        raise AssertionError("the table has such an action only for an open attempt")
    return attempt
