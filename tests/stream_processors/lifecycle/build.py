"""Events for life-cycle tests, and a partition whose log can be read back after a crash."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lightstream.runtime.clock import ManualClock
from lightstream.schemas.codec import Codec
from lightstream.schemas.records import (
    AttemptChanges,
    AttemptClosed,
    AttemptOpened,
    AttemptStatus,
    EventKind,
    RolloutChanges,
    RolloutConfig,
    RolloutEvent,
    RolloutSpec,
    RolloutState,
    TaskRequest,
    Verdict,
)
from lightstream.stream_processors.core.lifecycle import LifecyclePartition, Limits, Transition

LIMITS = Limits(timeout_s=600.0, unresponsive_s=60.0)
CODEC = Codec()


def attempt_name(rollout_id: str, sequence: int, runner: int = 0) -> str:
    return f"{rollout_id}-a{sequence}-{runner}"


def enqueued(rollout_id: str = "r", event_id: str = "", **config: Any) -> RolloutEvent:
    spec = RolloutSpec(rollout_id=rollout_id, input_json='{"a": 1}', config=RolloutConfig(**config))
    return _event(EventKind.ENQUEUED, rollout_id, event_id or f"{rollout_id}:enqueued", rollout=spec)


def started(rollout_id: str = "r", sequence: int = 1, runner: int = 0) -> RolloutEvent:
    attempt_id = attempt_name(rollout_id, sequence, runner)
    return _event(
        EventKind.ATTEMPT_STARTED,
        rollout_id,
        f"{attempt_id}:started",
        attempt_id=attempt_id,
        attempt_sequence=sequence,
        worker_id=f"w{runner}",
    )


def heartbeat(rollout_id: str = "r", sequence: int = 1, runner: int = 0, at: int = 1) -> RolloutEvent:
    attempt_id = attempt_name(rollout_id, sequence, runner)
    return _event(EventKind.HEARTBEAT, rollout_id, f"{attempt_id}:heartbeat:{at}", attempt_id=attempt_id)


def ended(rollout_id: str = "r", sequence: int = 1, runner: int = 0, *, error: str | None = None) -> RolloutEvent:
    attempt_id = attempt_name(rollout_id, sequence, runner)
    return _event(
        EventKind.ATTEMPT_UPDATED,
        rollout_id,
        f"{attempt_id}:ended",
        attempt_id=attempt_id,
        attempt_changes=AttemptChanges(status=AttemptStatus.FAILED if error else AttemptStatus.SUCCEEDED),
        error_type=error,
        error_message=error and f"{error} happened",
    )


def timed_out(rollout_id: str = "r", sequence: int = 1, runner: int = 0) -> RolloutEvent:
    attempt_id = attempt_name(rollout_id, sequence, runner)
    return _event(EventKind.TIMED_OUT, rollout_id, f"{attempt_id}:timed_out", attempt_id=attempt_id)


def silent(rollout_id: str = "r", sequence: int = 1, runner: int = 0) -> RolloutEvent:
    attempt_id = attempt_name(rollout_id, sequence, runner)
    return _event(EventKind.UNRESPONSIVE, rollout_id, f"{attempt_id}:unresponsive", attempt_id=attempt_id)


def cancelled(rollout_id: str = "r") -> RolloutEvent:
    return _event(EventKind.CANCELLED, rollout_id, f"{rollout_id}:cancelled", reason="enough")


def rollout_started(rollout_id: str = "r", **config: Any) -> RolloutEvent:
    spec = RolloutSpec(rollout_id=rollout_id, input_json='{"a": 1}', config=RolloutConfig(**config))
    attempt_id = attempt_name(rollout_id, 1)
    return _event(EventKind.ROLLOUT_STARTED, rollout_id, f"{rollout_id}:begun", rollout=spec, attempt_id=attempt_id)


def added(rollout_id: str = "r", name: str = "x") -> RolloutEvent:
    attempt_id = f"{rollout_id}-{name}"
    return _event(EventKind.ATTEMPT_ADDED, rollout_id, f"{attempt_id}:added", attempt_id=attempt_id)


def span_added(rollout_id: str = "r", attempt_id: str = "") -> RolloutEvent:
    attempt_id = attempt_id or attempt_name(rollout_id, 1)
    return _event(EventKind.SPAN_ADDED, rollout_id, f"{attempt_id}:span", attempt_id=attempt_id)


def said(rollout_id: str = "r", attempt_id: str = "latest", **changes: Any) -> RolloutEvent:
    """Something is said of an attempt."""
    changed = AttemptChanges(**changes)
    name = f"{attempt_id}:said:{changes}"
    return _event(EventKind.ATTEMPT_UPDATED, rollout_id, name, attempt_id=attempt_id, attempt_changes=changed)


def changed(rollout_id: str = "r", **changes: Any) -> RolloutEvent:
    """Something is said of a rollout."""
    fields = [name.removesuffix("_json") for name in changes]
    record = RolloutChanges(fields=fields, **changes)
    return _event(EventKind.ROLLOUT_UPDATED, rollout_id, f"{rollout_id}:changed:{changes}", rollout_changes=record)


def _event(kind: EventKind, rollout_id: str, event_id: str, **fields: Any) -> RolloutEvent:
    return RolloutEvent(
        event_id=event_id,
        kind=kind,
        rollout_id=rollout_id,
        occurred_unix_nano=ManualClock().now_unix_nano(),
        **fields,
    )


def restore(lifecycle: LifecyclePartition, states: Sequence[RolloutState]) -> None:
    """Give it what it had written, as it lies in the log."""
    for state in states:
        lifecycle.restore(state.rollout.rollout_id, state.source_offset, state.status, CODEC.encode(state))
    lifecycle.restored()


class Partition:
    """A life cycle with the topics around it as lists. ``crash`` forgets the memory and keeps the topics."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.limits = limits
        self.clock = ManualClock()
        self.events: list[RolloutEvent | TaskRequest] = []
        self.effects: list[AttemptOpened | AttemptClosed] = []
        self.states: list[RolloutState] = []
        self.committed = 0
        self.lifecycle = self._new()

    def write(self, *events: RolloutEvent | TaskRequest) -> None:
        """Append events to the log and process them one by one."""
        self.events.extend(events)
        self.process(len(events))

    def process(self, count: int) -> None:
        """Process the next events as one batch, all the way to the commit."""
        transitions = self._fold(count)
        self.effects.extend(effect.record for t in transitions for effect in t.effects)
        self.states.extend(t.record for t in transitions if t.record is not None)
        self.committed += min(count, len(self.events) - self.committed)

    def process_and_crash(self, count: int, writes: int) -> None:
        """Process a batch, but only its first ``writes`` records become durable; nothing is committed."""
        transitions = self._fold(count)
        effects = [effect.record for t in transitions for effect in t.effects]
        states = [t.record for t in transitions if t.record is not None]
        self.effects.extend(effects[:writes])
        self.states.extend(states[: max(0, writes - len(effects))])
        self.crash()

    def crash(self) -> None:
        self.lifecycle = self._new()
        restore(self.lifecycle, self.states)

    def tick(self, seconds: float) -> list[RolloutEvent]:
        """Let time pass; what falls due is written to the log and processed, and what follows from that.

        Returns:
            What was written, but for suspicions.
        """
        self.clock.advance(seconds)
        written: list[RolloutEvent] = []
        while due := self.lifecycle.due():
            self.write(*due)
            written += due
        return [event for event in written if event.kind is not EventKind.SUSPECTED]

    def state(self, rollout_id: str = "r") -> RolloutState:
        state = self.lifecycle.state_of(rollout_id)
        assert state is not None
        return state

    def verdict(self) -> Verdict:
        """On the last event that has one."""
        return self.states[-1].verdict

    def waiting(self) -> list[str]:
        """Ids of what would be dispatched, in order."""
        return [turn[-1] for turn in self.lifecycle.queue_head(1000)]

    def opened(self) -> list[str]:
        return [e.attempt_id for e in self.effects if isinstance(e, AttemptOpened)]

    def closed(self) -> list[AttemptClosed]:
        return [e for e in self.effects if isinstance(e, AttemptClosed)]

    def _new(self) -> LifecyclePartition:
        return LifecyclePartition(self.limits, self.clock, CODEC)

    def _fold(self, count: int) -> Sequence[Transition]:
        made: list[Transition] = []
        for offset, event in enumerate(self.events[self.committed : self.committed + count], self.committed):
            if isinstance(event, TaskRequest):
                made.extend(self.lifecycle.on_request(event, offset) or ())
            elif (transition := self.lifecycle.on_event(event, offset)) is not None:
                made.append(transition)
        return made
