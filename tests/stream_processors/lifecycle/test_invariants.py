"""Random events, repeats and reorderings, crashes and the passing of time: what must hold all the while."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lightstream.schemas.records import (
    AttemptStatus,
    EventKind,
    RolloutConfig,
    RolloutEvent,
    RolloutState,
    RolloutStatus,
    VerdictOutcome,
)
from lightstream.stream_processors.core.lifecycle import is_waiting, open_attempt
from tests.support.examples import examples

from .build import (
    Partition,
    added,
    cancelled,
    changed,
    ended,
    enqueued,
    heartbeat,
    rollout_started,
    said,
    span_added,
    started,
)

ROLLOUT_IDS = ["a", "b"]
ROLLOUTS = st.sampled_from(ROLLOUT_IDS)
CONDITIONS = st.lists(st.sampled_from(["failed", "timeout", "unresponsive"]), max_size=3, unique=True)


class LifeCycle(RuleBasedStateMachine):
    partition: Partition

    @initialize()
    def begin(self) -> None:
        self.partition = Partition()
        self.written: list[RolloutEvent] = []

    def write(self, event: RolloutEvent) -> None:
        self.written.append(event)
        self.partition.write(event)

    @rule(rollout=ROLLOUTS, attempts=st.integers(1, 3), conditions=CONDITIONS)
    def enqueue(self, rollout: str, attempts: int, conditions: list[str]) -> None:
        config: dict[str, Any] = {"max_attempts": attempts, "retry_condition": conditions}
        self.write(enqueued(rollout, timeout_seconds=30, unresponsive_seconds=10, **config))

    @rule(rollout=ROLLOUTS, sequence=st.integers(1, 4), runner=st.integers(0, 2))
    def start(self, rollout: str, sequence: int, runner: int) -> None:
        now = self.partition.clock.now_unix_nano()
        self.write(started(rollout, sequence, runner).model_copy(update={"occurred_unix_nano": now}))

    @rule(rollout=ROLLOUTS)
    def start_next(self, rollout: str) -> None:
        state = self.partition.lifecycle.state_of(rollout)
        self.start(rollout, 1 if state is None else len(state.attempts) + 1, 0)

    @rule(rollout=ROLLOUTS, sequence=st.integers(1, 3), error=st.sampled_from([None, "Oops"]))
    def end(self, rollout: str, sequence: int, error: str | None) -> None:
        self.write(ended(rollout, sequence, error=error))

    @rule(rollout=ROLLOUTS, sequence=st.integers(1, 3))
    def beat(self, rollout: str, sequence: int) -> None:
        self.write(heartbeat(rollout, sequence))

    @rule(rollout=ROLLOUTS)
    def cancel(self, rollout: str) -> None:
        self.write(cancelled(rollout))

    @rule(rollout=ROLLOUTS, attempts=st.integers(1, 3), conditions=CONDITIONS)
    def start_rollout(self, rollout: str, attempts: int, conditions: list[str]) -> None:
        self.write(rollout_started(rollout, max_attempts=attempts, retry_condition=conditions, unresponsive_seconds=10))

    @rule(rollout=ROLLOUTS, name=st.sampled_from(["x", "y", "z"]))
    def add(self, rollout: str, name: str) -> None:
        now = self.partition.clock.now_unix_nano()
        self.write(added(rollout, name).model_copy(update={"occurred_unix_nano": now}))

    @rule(rollout=ROLLOUTS, attempt=st.sampled_from(["a1-0", "a2-0", "x", "y"]))
    def add_span(self, rollout: str, attempt: str) -> None:
        self.write(span_added(rollout, f"{rollout}-{attempt}"))

    @rule(
        rollout=ROLLOUTS,
        attempt=st.sampled_from(["latest", "a1-0", "x"]),
        status=st.sampled_from([None, *(s for s in AttemptStatus if s is not AttemptStatus.UNKNOWN)]),
    )
    def say(self, rollout: str, attempt: str, status: AttemptStatus | None) -> None:
        attempt_id = attempt if attempt == "latest" else f"{rollout}-{attempt}"
        self.write(said(rollout, attempt_id, status=status, worker_id="w9", metadata_json='{"said": 1}'))

    @rule(rollout=ROLLOUTS, status=st.sampled_from([s for s in RolloutStatus if s is not RolloutStatus.UNKNOWN]))
    def change_status(self, rollout: str, status: RolloutStatus) -> None:
        self.write(changed(rollout, status=status))

    @rule(rollout=ROLLOUTS, attempts=st.integers(1, 3))
    def change_config(self, rollout: str, attempts: int) -> None:
        self.write(changed(rollout, config=RolloutConfig(max_attempts=attempts), input_json="2"))

    @rule(which=st.integers(0, 1000))
    def repeat(self, which: int) -> None:
        """Any event again: a retried write, or one that comes far too late."""
        if self.written:
            self.partition.write(self.written[which % len(self.written)])

    @rule(seconds=st.sampled_from([1, 9, 11, 31]))
    def wait(self, seconds: int) -> None:
        self.partition.tick(seconds)

    @rule()
    def crash(self) -> None:
        self.partition.crash()

    @invariant()
    def an_end_stays_as_it_is_with_one_final_record_until_somebody_puts_it_back(self) -> None:
        ends: set[str] = set()
        for rollout_id in ROLLOUT_IDS:
            made = {s.source_offset: s for s in self.partition.states if s.rollout.rollout_id == rollout_id}
            states = [s for s in made.values() if s.status is not RolloutStatus.UNKNOWN]
            for before, after in zip([None, *states], states, strict=False):
                if before is not None and before.status.is_terminal:
                    kind = after.verdict.kind
                    again = kind is EventKind.ATTEMPT_ADDED and len(after.attempts) == len(before.attempts) + 1
                    assert _ways(before) == (_ways(after)[:-1] if again else _ways(after))
                    back = again or (is_waiting(after) and kind is EventKind.ROLLOUT_UPDATED)
                    assert back or (before.status, before.ended_unix_nano) == (after.status, after.ended_unix_nano)
                elif after.status.is_terminal:
                    ran = None if before is None else open_attempt(before)
                    ends.add(f"{rollout_id}-none{len(after.attempts) + 1}" if ran is None else ran.attempt_id)
        assert {closed.attempt_id for closed in self.partition.closed() if closed.final} == ends

    @invariant()
    def attempts_open_and_close_once_and_in_turn(self) -> None:
        opened, closed = self.partition.opened(), [c.attempt_id for c in self.partition.closed()]
        for attempt_ids in (opened, closed):  # what stands for a rollout without one may end it twice
            begun = [attempt_id for attempt_id in attempt_ids if "-none" not in attempt_id]
            assert len(set(begun)) == len(begun)
        assert set(closed) <= set(opened)
        for rollout_id in ROLLOUT_IDS:
            state = self.partition.lifecycle.state_of(rollout_id)
            if state is None:
                continue
            attempt = open_attempt(state)
            still_open = {a for a in set(opened) - set(closed) if a.startswith(f"{rollout_id}-")}
            assert still_open == (set() if attempt is None else {attempt.attempt_id})
            assert attempt is None or attempt.status is not AttemptStatus.UNRESPONSIVE or is_waiting(state)
            assert [a.sequence for a in state.attempts] == list(range(1, len(state.attempts) + 1))

    @invariant()
    def the_queue_holds_what_waits(self) -> None:
        states = [self.partition.lifecycle.state_of(rollout_id) for rollout_id in ROLLOUT_IDS]
        waiting = {state.rollout.rollout_id for state in states if state is not None and is_waiting(state)}
        assert sorted(self.partition.waiting()) == sorted(waiting)

    @invariant()
    def every_event_but_heartbeats_is_answered_once(self) -> None:
        events = [event for event in self.partition.events if isinstance(event, RolloutEvent)]
        unanswered = (EventKind.HEARTBEAT, EventKind.SUSPECTED)
        asked = Counter(event.event_id for event in events if event.kind not in unanswered)
        answered = Counter(
            s.verdict.event_id for s in self.partition.states if s.verdict.kind is not EventKind.HEARTBEAT
        )
        assert asked == answered
        for state in self.partition.states:
            assert bool(state.verdict.reason) == (state.verdict.outcome is not VerdictOutcome.APPLIED)


def _ways(state: RolloutState) -> list[object]:
    """How its attempts ended."""
    return [(a.attempt_id, a.status, a.ended_unix_nano, a.error_type) for a in state.attempts]


TestLifeCycle = LifeCycle.TestCase
TestLifeCycle.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)
