"""The fold: a rollout's state and one fact give the next state, a verdict and effects. Pure and deterministic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pydantic import ValidationError

from lightstream.schemas.records import (
    AttemptState,
    AttemptStatus,
    EventKind,
    RolloutEvent,
    RolloutSpec,
    RolloutState,
    RolloutStatus,
    Verdict,
    VerdictOutcome,
)

from . import effects
from .effects import CANCELLED_ERROR_TYPE, Effect
from .limits import ERROR_MESSAGE_CHARACTERS_MAX, ERROR_TYPE_CHARACTERS_MAX, Limits
from .situation import open_attempt, situation_of
from .transitions import TRANSITIONS, Action

__all__ = ["Transition", "fold"]


@dataclass(frozen=True, slots=True)
class Transition:
    """What one fact did.

    Attributes:
        action: what happened; ``NOTHING`` and ``LISTEN`` left the rollout as it was.
        state: the rollout now; ``None`` when there is none.
        record: what ``rollouts`` gets: the state with the verdict, or, for a rollout that does not exist, a stub of
            status ``unknown``. ``None`` for a heartbeat that changes nothing.
        effects: what goes out before ``record``, in this order.
    """

    action: Action
    state: RolloutState | None
    record: RolloutState | None
    effects: tuple[Effect, ...] = ()


class _Refusal(Exception):  # noqa: N818  # not an error: the fact is answered
    """The table lets the fact through, but its content does not fit."""


def fold(state: RolloutState | None, event: RolloutEvent, source_offset: int, limits: Limits) -> Transition:
    """Apply one fact.

    Args:
        state: the rollout before, ``None`` when it was never enqueued. Unchanged.
        event: the fact; its own time is the only clock, so the same facts always give the same result.
        source_offset: where the fact lies in ``rollout-events``.
        limits: what a rollout may ask for at most.
    """
    rule = TRANSITIONS[event.kind][situation_of(state, event)]
    action, outcome, reason = rule.action, rule.outcome, _explained(rule.reason, state, event)
    after, sent = state, list[Effect]()
    try:
        if action in _ACTIONS:
            after, sent = _ACTIONS[action](state, event, limits)
    except _Refusal as refusal:
        action, outcome, reason = Action.NOTHING, VerdictOutcome.REFUSED, str(refusal)
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
    after = after.model_copy(update={"source_offset": source_offset, "verdict": verdict})
    return Transition(action, after, after, tuple(sent))


_Result = tuple[RolloutState, list[Effect]]


def _enqueue(state: RolloutState | None, event: RolloutEvent, limits: Limits) -> _Result:
    if event.rollout is None:
        raise _Refusal("a fact `enqueued` needs the rollout")
    if event.rollout.rollout_id != event.rollout_id:
        raise _Refusal(f"the fact is about {event.rollout_id}, but brings rollout {event.rollout.rollout_id}")
    try:
        # What was decoded has Avro's types, but nobody has checked the model's rules yet.
        spec = RolloutSpec.model_validate(event.rollout.model_dump())
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        raise _Refusal(f"{name} is {first['input']!r}: {first['msg']}") from error
    if broken := limits.broken_rule(spec):
        raise _Refusal(broken)
    after = RolloutState(
        rollout=spec,
        status=RolloutStatus.QUEUING,
        updated_unix_nano=event.occurred_unix_nano,
        source_offset=-1,
        verdict=_NO_VERDICT,
    )
    return after, [effects.task(after)]


def _start(state: RolloutState | None, event: RolloutEvent, limits: Limits) -> _Result:
    state = _known(state)
    if not event.attempt_id:
        raise _Refusal("a fact `attempt_started` needs an attempt_id")
    sequence = len(state.attempts) + 1
    if event.attempt_sequence != sequence:
        raise _Refusal(f"rollout {event.rollout_id} waits for attempt {sequence}, not {event.attempt_sequence}")
    attempt = AttemptState(
        attempt_id=event.attempt_id,
        sequence=sequence,
        status=AttemptStatus.RUNNING,
        worker_id=event.worker_id,
        started_unix_nano=event.occurred_unix_nano,
        last_heartbeat_unix_nano=event.occurred_unix_nano,
    )
    after = _moved(state, event, RolloutStatus.RUNNING, [*state.attempts, attempt])
    return after, [effects.opened(after, attempt)]


def _revive(state: RolloutState | None, event: RolloutEvent, limits: Limits) -> _Result:
    state = _known(state)
    attempt = _open(state).model_copy(
        update={"status": AttemptStatus.RUNNING, "last_heartbeat_unix_nano": event.occurred_unix_nano}
    )
    return _moved(state, event, state.status, [*state.attempts[:-1], attempt]), []


def _end(state: RolloutState | None, event: RolloutEvent, limits: Limits) -> _Result:
    if event.outcome is None or event.outcome not in (AttemptStatus.SUCCEEDED, AttemptStatus.FAILED):
        raise _Refusal(f"an attempt ends as succeeded or failed, not as {event.outcome}")
    return _close(_known(state), event, event.outcome, event.error_type, event.error_message)


def _time_out(state: RolloutState | None, event: RolloutEvent, limits: Limits) -> _Result:
    error = event.reason or f"not over {limits.timeout_nanos(_known(state).rollout.config) / 1e9:g} s after its start"
    return _close(_known(state), event, AttemptStatus.TIMEOUT, "Timeout", error)


def _silence(state: RolloutState | None, event: RolloutEvent, limits: Limits) -> _Result:
    state = _known(state)
    if _may_retry(state, AttemptStatus.UNRESPONSIVE):
        return _close(state, event, AttemptStatus.UNRESPONSIVE, "Unresponsive", event.reason)
    attempt = _open(state).model_copy(update={"status": AttemptStatus.UNRESPONSIVE})
    return _moved(state, event, state.status, [*state.attempts[:-1], attempt]), []


def _cancel(state: RolloutState | None, event: RolloutEvent, limits: Limits) -> _Result:
    state = _known(state)
    reason = _cut(event.reason or "cancelled", ERROR_MESSAGE_CHARACTERS_MAX)
    now = event.occurred_unix_nano
    running = open_attempt(state)
    if running is None:
        after = _moved(state, event, RolloutStatus.CANCELLED, state.attempts)
        none = effects.stand_in(after, now, reason)
        return after, [effects.opened(after, none), effects.closed(after, none, now)]
    over = _ended(running, AttemptStatus.FAILED, now, CANCELLED_ERROR_TYPE, reason)
    after = _moved(state, event, RolloutStatus.CANCELLED, [*state.attempts[:-1], over])
    return after, [effects.closed(after, over, now)]


_ACTIONS: dict[Action, Callable[[RolloutState | None, RolloutEvent, Limits], _Result]] = {
    Action.ENQUEUE: _enqueue,
    Action.START: _start,
    Action.REVIVE: _revive,
    Action.END: _end,
    Action.TIME_OUT: _time_out,
    Action.SILENCE: _silence,
    Action.CANCEL: _cancel,
}


def _close(
    state: RolloutState, event: RolloutEvent, status: AttemptStatus, error_type: str | None, error_message: str | None
) -> _Result:
    """End the open attempt, and with it the rollout unless it is to be tried again."""
    now = event.occurred_unix_nano
    attempt = _ended(_open(state), status, now, error_type, error_message)
    attempts = [*state.attempts[:-1], attempt]
    if status is AttemptStatus.SUCCEEDED:
        after = _moved(state, event, RolloutStatus.SUCCEEDED, attempts)
    elif _may_retry(state, status):
        after = _moved(state, event, RolloutStatus.REQUEUING, attempts)
        return after, [effects.closed(after, attempt, now), effects.task(after)]
    else:
        after = _moved(state, event, RolloutStatus.FAILED, attempts)
    return after, [effects.closed(after, attempt, now)]


def _may_retry(state: RolloutState, status: AttemptStatus) -> bool:
    config = state.rollout.config
    return status in config.retry_condition and len(state.attempts) < config.max_attempts


def _ended(
    attempt: AttemptState, status: AttemptStatus, now_unix_nano: int, error_type: str | None, message: str | None
) -> AttemptState:
    return attempt.model_copy(
        update={
            "status": status,
            "ended_unix_nano": now_unix_nano,
            "error_type": error_type and _cut(error_type, ERROR_TYPE_CHARACTERS_MAX),
            "error_message": message and _cut(message, ERROR_MESSAGE_CHARACTERS_MAX),
        }
    )


def _moved(
    state: RolloutState, event: RolloutEvent, status: RolloutStatus, attempts: list[AttemptState]
) -> RolloutState:
    return state.model_copy(
        update={
            "status": status,
            "attempts": attempts,
            "updated_unix_nano": event.occurred_unix_nano,
            "ended_unix_nano": event.occurred_unix_nano if status.is_terminal else None,
        }
    )


def _known(state: RolloutState | None) -> RolloutState:
    if state is None:
        raise AssertionError("the table sends no fact about an unknown rollout here")
    return state


def _open(state: RolloutState) -> AttemptState:
    attempt = open_attempt(state)
    if attempt is None:
        raise AssertionError("the table sends only facts about an open attempt here")
    return attempt


def _cut(text: str, characters_max: int) -> str:
    """The end of ``text``, where a traceback says what went wrong."""
    return text if len(text) <= characters_max else "…" + text[1 - characters_max :]


def _explained(reason: str, state: RolloutState | None, event: RolloutEvent) -> str:
    """A table's reason with the names filled in."""
    if "{" not in reason:
        return reason
    attempt = None if state is None else open_attempt(state)
    return reason.format(
        rollout_id=event.rollout_id,
        attempt_id=event.attempt_id,
        status="unknown" if state is None else state.status.value,
        open_attempt="none" if attempt is None else attempt.attempt_id,
    )


_NO_VERDICT = Verdict(event_id="-", kind=EventKind.UNKNOWN, outcome=VerdictOutcome.UNKNOWN)
