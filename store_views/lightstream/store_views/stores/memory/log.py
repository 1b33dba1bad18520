"""The log in memory, with the life cycle that folds it: the same facts, the same fold, no Kafka between them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from lightstream.schemas.clock import Clock
from lightstream.schemas.records import RolloutEvent, RolloutState
from lightstream.stream_processors.core.lifecycle import SIGNS_OF_LIFE, Deadlines, Limits, WaitingRollouts, fold

__all__ = ["MemoryLog"]


class MemoryLog:
    """Facts, the states they make, and the queue. Thread-safe.

    What is due by the clock is folded before anything else is done or told, and by :meth:`fire_due`.
    """

    def __init__(self, limits: Limits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._lock = threading.RLock()
        self._facts: list[RolloutEvent] = []
        self._states: dict[str, RolloutState] = {}
        self._queue = WaitingRollouts()
        self._deadlines = Deadlines(limits)
        self._ends: dict[str, list[Future[RolloutState]]] = {}
        self._takers: deque[Future[None]] = deque()
        self._closed = False
        self.watched = threading.Event()
        """Set whenever there is a deadline before all others."""

    def write(self, fact: RolloutEvent) -> RolloutState | None:
        """Append a fact and fold it; returns the state with its verdict, ``None`` for a heartbeat that has none."""
        with self._lock:
            self.fire_due()
            return self._fold(fact)

    def fire_due(self) -> int | None:
        """Write the facts that the passing of time has made; returns when the next one may be due."""
        with self._lock:
            for fact in self._deadlines.due(self._clock.now_unix_nano()):
                self._fold(fact)
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

    def facts(self) -> list[RolloutEvent]:
        """The whole log. Folding it again gives the same states."""
        with self._lock:
            return list(self._facts)

    def begin_next(self, start: Callable[[str, int], RolloutEvent]) -> RolloutState | None:
        """Begin an attempt of the rollout whose turn it is; ``start`` makes the fact of its id and attempt number."""
        with self._lock:
            self.fire_due()
            rollout_id = self._queue.first()
            if rollout_id is None:
                return None
            return self._fold(start(rollout_id, len(self._states[rollout_id].attempts) + 1))

    def expect_task(self) -> Future[None]:
        """A future that is done when something was put in the queue, for one taker each; cancelled if this is closed.

        Whoever was told takes what there is, or has to :meth:`leave`: nobody else is told of it.
        """
        future: Future[None] = Future()
        with self._lock:
            if len(self._queue):
                future.set_result(None)
            elif self._closed:
                future.cancel()
            else:
                self._takers.append(future)
        return future

    def leave(self, taker: Future[None]) -> None:
        """Its owner waits no more and takes nothing: what it was told, the next one is told."""
        with self._lock:
            if not taker.done():
                self._takers.remove(taker)
            elif len(self._queue):
                self._wake_taker()

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
        takers, self._takers = self._takers, deque()
        for taker in takers:
            taker.cancel()
        ends, self._ends = self._ends, {}
        for futures in ends.values():
            for future in futures:
                future.cancel()

    def _fold(self, fact: RolloutEvent) -> RolloutState | None:
        self._facts.append(fact)
        transition = fold(self._states.get(fact.rollout_id), fact, len(self._facts) - 1, self._limits)
        now, due = self._clock.now_unix_nano(), self._deadlines.next_unix_nano()
        if transition.state is not None and transition.record is not None:
            self._states[fact.rollout_id] = transition.state
            waiting = len(self._queue)
            self._queue.update(transition.state)
            if len(self._queue) > waiting:
                self._wake_taker()
            self._deadlines.update(transition.state, now)
        if transition.action in SIGNS_OF_LIFE:
            self._deadlines.heard(fact, now)
        due_now = self._deadlines.next_unix_nano()
        if due_now is not None and (due is None or due_now < due):
            self.watched.set()
        if transition.state is not None and transition.state.status.is_terminal:
            for future in self._ends.pop(fact.rollout_id, ()):
                if future.set_running_or_notify_cancel():
                    future.set_result(transition.state)
        return transition.record

    def _wake_taker(self) -> None:
        if self._takers:
            self._takers.popleft().set_result(None)
