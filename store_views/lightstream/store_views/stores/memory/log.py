"""The log in memory, with the life cycle that folds it: the same events, the same fold, no Kafka between them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from itertools import count

from lightstream.runtime.clock import Clock
from lightstream.schemas.records import ANY_RUN, RolloutEvent, RolloutState
from lightstream.stream_processors.core.lifecycle import SIGNS_OF_LIFE, Deadlines, Limits, WaitingRollouts, fold

__all__ = ["MemoryLog"]


class MemoryLog:
    """Events, the states they make, and the queue. Thread-safe.

    What is due by the clock is folded before anything else is done or told, and by :meth:`fire_due`.
    """

    def __init__(self, limits: Limits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._lock = threading.RLock()
        self._events: list[RolloutEvent] = []
        self._states: dict[str, RolloutState] = {}
        self._queue = WaitingRollouts()
        self._deadlines = Deadlines(limits)
        self._ends: dict[str, list[Future[RolloutState]]] = {}
        self._takers: dict[str, deque[tuple[int, Future[None]]]] = {}
        self._tickets = count()
        self._closed = False
        self.watched = threading.Event()
        """Set whenever there is a deadline before all others."""

    def write(self, event: RolloutEvent) -> RolloutState | None:
        """Append an event and fold it; returns the state with its verdict, ``None`` for a heartbeat that has none."""
        with self._lock:
            self.fire_due()
            return self._fold(event)

    def fire_due(self) -> int | None:
        """Write the events that the passing of time has made; returns when the next one may be due."""
        with self._lock:
            for event in self._deadlines.due(self._clock.now_unix_nano()):
                self._fold(event)
            return self._deadlines.next_unix_nano()

    def state_of(self, rollout_id: str) -> RolloutState | None:
        """A rollout as it stands."""
        with self._lock:
            self.fire_due()
            return self._states.get(rollout_id)

    def states(self) -> list[RolloutState]:
        """All rollouts as they stand, the oldest first."""
        with self._lock:
            self.fire_due()
            return list(self._states.values())

    def events(self) -> list[RolloutEvent]:
        """The whole log. Folding it again gives the same states."""
        with self._lock:
            return list(self._events)

    def begin_next(self, start: Callable[[str, int], RolloutEvent], run_id: str = ANY_RUN) -> RolloutState | None:
        """Begin an attempt of the rollout of that run whose turn it is.

        ``start`` makes the event of its id and attempt number.
        """
        with self._lock:
            self.fire_due()
            rollout_id = self._queue.first(run_id)
            if rollout_id is None:
                return None
            return self._fold(start(rollout_id, len(self._states[rollout_id].attempts) + 1))

    def expect_task(self, run_id: str = ANY_RUN) -> Future[None]:
        """A future that is done when something of that run was put in the queue, for one taker each.

        It is cancelled if this is closed.

        Whoever was told takes what there is, or has to :meth:`leave`: nobody else is told of it.
        """
        future: Future[None] = Future()
        with self._lock:
            if self._queue.length(run_id):
                future.set_result(None)
            elif self._closed:
                future.cancel()
            else:
                self._takers.setdefault(run_id, deque()).append((next(self._tickets), future))
        return future

    def leave(self, taker: Future[None], run_id: str = ANY_RUN) -> None:
        """Its owner waits no more and takes nothing: what it was told, the next one is told."""
        with self._lock:
            if not taker.done():
                left = deque(known for known in self._takers.pop(run_id) if known[1] is not taker)
                if left:
                    self._takers[run_id] = left
            elif run_id == ANY_RUN:
                self._wake_taker(self._takers)
            else:
                self._wake_taker((run_id, ANY_RUN))

    def expect_ends(self, rollout_ids: list[str]) -> tuple[dict[str, RolloutState], dict[str, Future[RolloutState]]]:
        """Those that are over, and futures of the others' ends; neither for a rollout that does not exist.

        The futures are cancelled if this is closed.
        """
        with self._lock:
            self.fire_due()
            over: dict[str, RolloutState] = {}
            futures: dict[str, Future[RolloutState]] = {}
            for rollout_id in rollout_ids:
                state = self._states.get(rollout_id)
                if state is not None and state.status.is_terminal:
                    over[rollout_id] = state
                elif state is not None:
                    futures[rollout_id] = Future()
                    waiting = [f for f in self._ends.get(rollout_id, []) if not f.done()]
                    self._ends[rollout_id] = [*waiting, futures[rollout_id]]
            if self._closed:
                self._cancel_waits()
            return over, futures

    def close(self) -> None:
        """Nobody waits here any more, now or later."""
        with self._lock:
            self._closed = True
            self._cancel_waits()

    def _cancel_waits(self) -> None:
        takers, self._takers = self._takers, {}
        for _, taker in (taker for of_run in takers.values() for taker in of_run):
            taker.cancel()
        ends, self._ends = self._ends, {}
        for futures in ends.values():
            for future in futures:
                future.cancel()

    def _fold(self, event: RolloutEvent) -> RolloutState | None:
        self._events.append(event)
        transition = fold(self._states.get(event.rollout_id), event, len(self._events) - 1, self._limits)
        now, due = self._clock.now_unix_nano(), self._deadlines.next_unix_nano()
        if transition.state is not None and transition.record is not None:
            self._states[event.rollout_id] = transition.state
            longer = self._queue.update(transition.state)
            if longer is not None:
                self._wake_taker((longer, ANY_RUN))
            self._deadlines.update(transition.state, now)
        if transition.action in SIGNS_OF_LIFE:
            self._deadlines.heard(event, now)
        due_now = self._deadlines.next_unix_nano()
        if due_now is not None and (due is None or due_now < due):
            self.watched.set()
        if transition.state is not None and transition.state.status.is_terminal:
            for future in self._ends.pop(event.rollout_id, ()):
                if future.set_running_or_notify_cancel():
                    future.set_result(transition.state)
        return transition.record

    def _wake_taker(self, run_ids: Iterable[str]) -> None:
        """Tell whoever has waited longest for one of these runs and may find something."""
        found = [run_id for run_id in run_ids if self._takers.get(run_id) and self._queue.length(run_id)]
        if found:
            first = min(found, key=lambda run_id: self._takers[run_id][0][0])
            _, taker = self._takers[first].popleft()
            if not self._takers[first]:
                del self._takers[first]
            taker.set_result(None)
