"""The rollouts of one partition that wait for an attempt, in the order in which they are dispatched."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import NamedTuple

from lightstream.runtime.clock import NANOS_PER_SECOND
from lightstream.schemas.records import ANY_RUN, RolloutState, RolloutStatus

from .situation import is_waiting

__all__ = ["Turn", "WaitingRollouts", "queue_time"]

CLOCK_ERROR_NANOS_MAX = NANOS_PER_SECOND
"""Clocks that are set by the network differ by less, and events are under way for less, as a rule."""


class Turn(NamedTuple):
    """Compares as the queue of a partition goes.

    Attributes:
        priority: negated.
        first: 0 for a retry, 1 for a first attempt.
        offset: of the event that made the rollout: its age, whatever the clocks say.
        unix_nano: its age beside those of other partitions (:func:`queue_time`).
    """

    priority: int
    first: int
    offset: int
    unix_nano: int
    rollout_id: str

    @property
    def place(self) -> tuple[int, int, int]:
        """What the queues of several partitions are merged by."""
        return self.priority, self.first, self.unix_nano


def queue_time(enqueued_unix_nano: int, logged_unix_nano: int | None) -> int:
    """The time by which a rollout is older or younger than those of other partitions.

    That is when it was enqueued by its writer's clock, which tells apart what is written at once; by the log's, where
    the writer's is wrong.
    """
    if logged_unix_nano is None or abs(logged_unix_nano - enqueued_unix_nano) <= CLOCK_ERROR_NANOS_MAX:
        return enqueued_unix_nano
    return logged_unix_nano


class WaitingRollouts:
    """A queue for each run and one of all (:data:`ANY_RUN`): by priority, then retries before first attempts, then age.

    Rollouts that belong to no run have the queue of the empty run id.

    Cost: some microseconds per change, up to some hundred thousand that wait at once (sorted lists: changes move
    pointers, at most 8 bytes each).
    """

    def __init__(self) -> None:
        self._queues: dict[str, list[Turn]] = {}
        self._place_of: dict[str, tuple[str, Turn]] = {}
        self._changed: dict[str, None] = {}

    def update(self, state: RolloutState) -> str | None:
        """The rollout has changed: it queues, keeps its place, or waits no more.

        Returns:
            The run whose queue got longer.
        """
        rollout_id, run_id = state.rollout.rollout_id, state.rollout.run_id
        known = self._place_of.get(rollout_id)
        place = (run_id, _turn(state)) if is_waiting(state) else None
        if place == known:
            return None
        if known is not None:
            del self._place_of[rollout_id]
            self._remove(*known)
        if place is not None:
            self._place_of[rollout_id] = place
            for queue in {run_id, ANY_RUN}:
                insort(self._queues.setdefault(queue, []), place[1])
                self._has_changed(queue)
        return run_id if known is None else None

    def first(self, run_id: str = ANY_RUN) -> str | None:
        """The id of the rollout of that run whose turn it is. It stays in the queue until it changes."""
        queue = self._queues.get(run_id)
        return queue[0].rollout_id if queue else None

    def head(self, count: int, run_id: str = ANY_RUN) -> list[Turn]:
        """The first ``count`` turns of that run."""
        return self._queues.get(run_id, [])[:count]

    def length(self, run_id: str = ANY_RUN) -> int:
        """How many rollouts of that run wait."""
        return len(self._queues.get(run_id, ()))

    def changed(self) -> list[str]:
        """The runs whose queues have changed since they were :meth:`noted`, the latest first."""
        return list(reversed(self._changed))

    def noted(self, run_id: str) -> None:
        """The run's queue has been told to whom it concerns."""
        self._changed.pop(run_id, None)

    def _remove(self, run_id: str, turn: Turn) -> None:
        for name in {run_id, ANY_RUN}:
            queue = self._queues[name]
            del queue[bisect_left(queue, turn)]
            if not queue:
                del self._queues[name]
            self._has_changed(name)

    def _has_changed(self, run_id: str) -> None:
        self._changed.pop(run_id, None)
        self._changed[run_id] = None


def _turn(state: RolloutState) -> Turn:
    spec = state.rollout
    first = 0 if state.status is RolloutStatus.REQUEUING else 1
    return Turn(-spec.config.priority, first, state.queue_offset, state.queue_unix_nano, spec.rollout_id)
