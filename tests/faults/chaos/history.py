"""Whether the log tells of legal lives: every state is what the pure fold makes of the state before and the event."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from lightstream.schemas.records import (
    AttemptClosed,
    AttemptOpened,
    AttemptStatus,
    EventKind,
    Record,
    RolloutEvent,
    RolloutState,
    TaskRequest,
    Trajectory,
)
from lightstream.stream_processors.core.lifecycle import Limits, fold
from tests.support.log_tail import Logged

Place = tuple[int, int]


def assert_legal_lives(events: Sequence[Logged], states: Sequence[Logged], limits: Limits) -> dict[str, RolloutState]:
    """The last state of each rollout.

    Raises:
        AssertionError: a state is not what the table makes of its event; a rollout that was over changed; an event has
            no verdict.
    """
    event_at: dict[Place, Record | None] = {(logged.partition, logged.offset): logged.record for logged in events}
    time_at = {(logged.partition, logged.offset): logged.logged_unix_nano for logged in events}
    lives: dict[str, RolloutState] = {}
    for logged in states:
        state = logged.record
        if not isinstance(state, RolloutState):
            continue  # an empty answer to a request
        before = lives.get(state.rollout.rollout_id)
        if before is not None and state.source_offset == before.source_offset:
            assert state == before, f"two answers to one event:\n{before}\n{state}"
            continue
        place = (logged.partition, state.source_offset)
        made = fold(before, _event_of(event_at[place], state), state.source_offset, limits, time_at[place])
        assert made.record == state, f"after {before}\nthe event {event_at[place]}\nmakes {made.record}\nnot {state}"
        if before is not None and before.status.is_terminal:
            assert _decided(before) == _decided(state), f"it was over, and changed:\n{before}\n{state}"
        lives[state.rollout.rollout_id] = state
    assert not (left := unanswered(events, states)), f"events without a verdict: {[event_at[at] for at in left]}"
    return lives


def unanswered(events: Sequence[Logged], states: Sequence[Logged]) -> list[Place]:
    """Where the events are that have no verdict and need one."""
    answered = {
        (logged.partition, logged.record.source_offset) for logged in states if isinstance(logged.record, RolloutState)
    }
    # A sign of life may change nothing, and a suspicion is no more than that: both are passed over without a word.
    silent = (EventKind.HEARTBEAT, EventKind.SUSPECTED)
    asked = {
        (logged.partition, logged.offset)
        for logged in events
        if isinstance(logged.record, RolloutEvent) and logged.record.kind not in silent
    }
    return sorted(asked - answered)


def assert_attempts_open_and_close_once(marks: Iterable[Logged], lives: dict[str, RolloutState]) -> None:
    """Each attempt that began was opened and closed, with repeats that say the same; the last one for good.

    None is closed that did not begin, but for the one that stands for a rollout that ended while none ran.
    """
    opened: dict[str, set[str]] = defaultdict(set)
    closed: dict[str, AttemptClosed] = {}
    for logged in marks:
        record = logged.record
        if isinstance(record, AttemptOpened):
            opened[record.rollout.rollout_id].add(record.attempt_id)
        elif isinstance(record, AttemptClosed):
            assert closed.setdefault(record.attempt_id, record) == record, f"closed twice:\n{record}"
    finals = Counter(record.rollout_id for record in closed.values() if record.final)
    assert finals == Counter(dict.fromkeys(lives, 1))
    for rollout_id, state in lives.items():
        begun = {attempt.attempt_id for attempt in state.attempts}
        # A life cycle may be killed between an opening and the state that implies it: that attempt never began.
        assert opened[rollout_id] >= begun, f"{rollout_id}: opened {opened[rollout_id]}, begun {begun}"
        assert begun <= closed.keys(), f"{rollout_id}: never closed {begun - closed.keys()}"
        closed_of = {attempt_id for attempt_id, record in closed.items() if record.rollout_id == rollout_id}
        assert closed_of - {f"{rollout_id}-none{len(begun) + 1}"} <= begun, (
            f"{rollout_id}: closed {closed_of}, begun {begun}"
        )


def assert_one_final_trajectory_each(trajectories: Iterable[Logged], lives: dict[str, RolloutState]) -> None:
    """One trajectory of each attempt, with repeats that say the same, and one final one of each rollout.

    An attempt whose Runner was out of reach for longer than it may be silent has a revision, once its spans come.
    """
    told: dict[tuple[str, int], Trajectory] = {}
    for logged in trajectories:
        record = logged.record
        assert isinstance(record, Trajectory)
        assert record.revision == 0 or record.status is AttemptStatus.UNRESPONSIVE, f"revised without need: {record}"
        place = (record.attempt_id, record.revision)
        assert told.setdefault(place, record) == record, f"two trajectories of {place}"
    finals = Counter(record.rollout_id for record in told.values() if record.final and record.revision == 0)
    assert finals == Counter(dict.fromkeys(lives, 1))


def _event_of(record: Record | None, state: RolloutState) -> RolloutEvent:
    """What was folded: an event of the log, or the start that a request for work led to."""
    if isinstance(record, RolloutEvent):
        return record
    assert isinstance(record, TaskRequest), f"a state reflects {record}"
    attempt = state.attempts[-1]
    assert (attempt.worker_id or "") in record.worker_ids
    return RolloutEvent(
        event_id=record.request_id,
        kind=EventKind.ATTEMPT_STARTED,
        rollout_id=state.rollout.rollout_id,
        occurred_unix_nano=record.occurred_unix_nano,
        attempt_id=attempt.attempt_id,
        attempt_sequence=attempt.sequence,
        worker_id=attempt.worker_id,
    )


def _decided(state: RolloutState) -> object:
    ways = [(a.attempt_id, a.status, a.ended_unix_nano, a.error_type) for a in state.attempts]
    return state.status, state.ended_unix_nano, ways
