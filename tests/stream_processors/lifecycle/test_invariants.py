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
    RolloutStatus,
    VerdictOutcome,
)
from lightstream.stream_processors.core.lifecycle import is_waiting, open_attempt

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
        self.terminal: dict[str, object] = {}
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
    def terminal_stays_as_it_is_with_exactly_one_final_record(self) -> None:
        for rollout_id in ROLLOUT_IDS:
            state = self.partition.lifecycle.state_of(rollout_id)
            if state is not None and state.status.is_terminal:
                ways = [(a.attempt_id, a.status, a.ended_unix_nano, a.error_type) for a in state.attempts]
                decided = (state.status, state.ended_unix_nano, ways)
                assert self.terminal.setdefault(rollout_id, decided) == decided
            else:
                assert rollout_id not in self.terminal
        finals = Counter(closed.rollout_id for closed in self.partition.closed() if closed.final)
        assert finals == Counter(dict.fromkeys(self.terminal, 1))

    @invariant()
    def attempts_open_and_close_once_and_in_turn(self) -> None:
        opened, closed = self.partition.opened(), [c.attempt_id for c in self.partition.closed()]
        assert len(set(opened)) == len(opened)
        assert len(set(closed)) == len(closed)
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


TestLifeCycle = LifeCycle.TestCase
TestLifeCycle.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
