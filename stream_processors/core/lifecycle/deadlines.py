"""Finds the open attempts that are overdue: deadlines since the start, silence since the last sign of life."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

from lightstream.runtime.clock import NANOS_PER_SECOND
from lightstream.schemas.records import AttemptState, EventKind, RolloutConfig, RolloutEvent, RolloutState

from .limits import Limits
from .situation import is_waiting, open_attempt
from .transitions import Action

SIGNS_OF_LIFE = frozenset({Action.REMEMBER_HEARTBEAT, Action.SIGN_OF_LIFE_OF_OPEN_ATTEMPT, Action.UPDATE_OPEN_ATTEMPT})
"""Actions that show that an open attempt is alive: :meth:`Deadlines.heard`."""


VOID_MAX = 1_000
"""Entries of attempts that are over may wait for their time: so many, and as many as there are open ones."""


@dataclass(slots=True)
class _Watch:
    """One open attempt.

    Attributes:
        names_silence: its rollout says itself how long it may be silent.
        heard_unix_nano: last sign of life by *our* clock, so that a worker's wrong clock does no harm.
        suspected_unix_nano: when it was last reported as silent; ``None`` if it was heard of since.
        timeout_reported: the event is written; it only has to be folded.
        queued_unix_nano: where in the heap it is; its other entries there are void.
    """

    rollout_id: str
    attempt_id: str
    attempt_sequence: int
    source_offset: int
    timeout_unix_nano: int
    timeout_nanos: int
    silence_nanos: int
    names_silence: bool
    heard_unix_nano: int
    suspected_unix_nano: int | None = None
    timeout_reported: bool = False
    queued_unix_nano: int | None = None

    def next_unix_nano(self) -> int | None:
        """Time of the next event about the attempt, unless it is heard of before; ``None`` for never."""
        if self.timeout_reported:
            return None
        if self.suspected_unix_nano is not None:
            return self.timeout_unix_nano
        return min(self.timeout_unix_nano, self.heard_unix_nano + self.silence_nanos)


class Deadlines:
    """Deadlines of the open attempts of one partition. Needs no clock: the caller passes the time.

    Cost: two heap entries per open attempt at most (and :data:`VOID_MAX`); :meth:`due` looks only at those whose time
    has come.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._watches: dict[str, _Watch] = {}
        self._heap: list[tuple[int, int, _Watch]] = []
        self._pushes = 0

    def __len__(self) -> int:
        return len(self._watches)

    def update(self, state: RolloutState, now_unix_nano: int) -> None:
        """The rollout has changed: begin, go on or cease to watch. Counts as a sign of life of a new attempt."""
        rollout_id = state.rollout.rollout_id
        attempt = open_attempt(state)
        if attempt is None or is_waiting(state):
            # A silent attempt whose rollout waits for another may come back, but nothing more can fall due for it.
            self._watches.pop(rollout_id, None)
            return
        config = state.rollout.config
        timeout_nanos = self._limits.timeout_nanos(config)
        silence_nanos = self._limits.unresponsive_nanos(config)
        known = self._watches.get(rollout_id)
        if known is not None and known.attempt_id == attempt.attempt_id:
            known.source_offset = state.source_offset
            known.names_silence = _names_silence(config)
            if (timeout_nanos, silence_nanos) != (known.timeout_nanos, known.silence_nanos):
                known.timeout_nanos, known.silence_nanos = timeout_nanos, silence_nanos
                known.timeout_unix_nano = _begun(attempt) + timeout_nanos
                self._push(known)
            return
        watch = _Watch(
            rollout_id=rollout_id,
            attempt_id=attempt.attempt_id,
            attempt_sequence=attempt.sequence,
            source_offset=state.source_offset,
            timeout_unix_nano=_begun(attempt) + timeout_nanos,
            timeout_nanos=timeout_nanos,
            silence_nanos=silence_nanos,
            names_silence=_names_silence(config),
            heard_unix_nano=now_unix_nano,
        )
        self._watches[rollout_id] = watch
        self._push(watch)

    def heard(self, event: RolloutEvent, now_unix_nano: int) -> None:
        """The event is a sign of life of the rollout's open attempt: of now, or of as long ago as it says.

        What it says of a time before counts for rollouts that name their ``unresponsive_seconds``; the default is only
        about what is heard here.
        """
        watch = self._watches.get(event.rollout_id)
        if watch is None:
            return
        before, suspected = watch.heard_unix_nano, watch.suspected_unix_nano
        watch.heard_unix_nano = now_unix_nano - (_ago_nanos(event) if watch.names_silence else 0)
        if suspected is not None and suspected < watch.heard_unix_nano:
            watch.suspected_unix_nano = None  # the sign lay in the log before the report: :meth:`is_silent_since`
            self._push(watch)
        elif watch.heard_unix_nano < before:
            self._push(watch)

    def is_silent_since(self, report: RolloutEvent) -> bool:
        """Whether the attempt that ``report`` calls silent is watched, and was not heard of after the report was made.

        It is heard of where the life cycle stood still, or was far behind: what it had not folded yet lay in the log.
        """
        watch = self._watches.get(report.rollout_id)
        return (
            watch is not None
            and watch.attempt_id == report.attempt_id
            and watch.heard_unix_nano <= report.occurred_unix_nano
        )

    def next_unix_nano(self) -> int | None:
        """The earliest time to ask :meth:`due` again; ``None`` while nothing is watched."""
        return self._heap[0][0] if self._watches and self._heap else None

    def due(self, now_unix_nano: int) -> list[RolloutEvent]:
        """The events that the passing of time makes, each once. They count when they come back from the log."""
        events: list[RolloutEvent] = []
        while self._heap and self._heap[0][0] <= now_unix_nano:
            entry = heapq.heappop(self._heap)
            if not self._is_valid(entry):
                continue
            watch = entry[2]
            event = _overdue(watch, now_unix_nano)
            if event is not None:
                events.append(event)
            self._push(watch)
        return events

    def _push(self, watch: _Watch) -> None:
        at = watch.queued_unix_nano = watch.next_unix_nano()
        if at is not None:
            self._pushes += 1  # breaks ties: watches do not compare
            heapq.heappush(self._heap, (at, self._pushes, watch))
            if len(self._heap) > 2 * len(self._watches) + VOID_MAX:
                self._heap = [entry for entry in self._heap if self._is_valid(entry)]
                heapq.heapify(self._heap)

    def _is_valid(self, entry: tuple[int, int, _Watch]) -> bool:
        at, _, watch = entry
        return self._watches.get(watch.rollout_id) is watch and at == watch.queued_unix_nano


def _names_silence(config: RolloutConfig) -> bool:
    """Whether a rollout says how long it may be silent. With no limit at all, no sign of life can be too long ago."""
    return config.unresponsive_seconds is not None and math.isfinite(config.unresponsive_seconds)


def _begun(attempt: AttemptState) -> int:
    """Since when its deadline counts: a writer whose clock is wrong neither shortens nor lengthens it."""
    return attempt.started_unix_nano if attempt.begun_unix_nano is None else attempt.begun_unix_nano


def _ago_nanos(event: RolloutEvent) -> int:
    """Time from the last sign of life that the event reports to the event: by its writer's clock alone.

    A time that was still to come counts as now.
    """
    heard = None if event.attempt_changes is None else event.attempt_changes.last_heartbeat_unix_nano
    return 0 if heard is None else max(0, event.occurred_unix_nano - heard)


def _overdue(watch: _Watch, now_unix_nano: int) -> RolloutEvent | None:
    if watch.timeout_reported:
        return None
    if watch.timeout_unix_nano <= now_unix_nano:
        watch.timeout_reported = True
        return RolloutEvent(
            event_id=f"{watch.attempt_id}:timed_out",
            kind=EventKind.TIMED_OUT,
            rollout_id=watch.rollout_id,
            occurred_unix_nano=now_unix_nano,
            attempt_id=watch.attempt_id,
            attempt_sequence=watch.attempt_sequence,
            reason=f"not over {watch.timeout_nanos / NANOS_PER_SECOND:g} s after its start",
        )
    if watch.suspected_unix_nano is not None or watch.heard_unix_nano + watch.silence_nanos > now_unix_nano:
        return None
    watch.suspected_unix_nano = now_unix_nano
    return RolloutEvent(
        # An attempt can fall silent again after it was revived, which moves the state's offset.
        event_id=f"{watch.attempt_id}:unresponsive:{watch.source_offset}",
        kind=EventKind.UNRESPONSIVE,
        rollout_id=watch.rollout_id,
        occurred_unix_nano=now_unix_nano,
        attempt_id=watch.attempt_id,
        attempt_sequence=watch.attempt_sequence,
        reason=f"no sign of life for {watch.silence_nanos / NANOS_PER_SECOND:g} s",
    )
