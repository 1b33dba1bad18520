"""The queues of one partition: rollouts that wait for an attempt, in the order in which they are dispatched."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import NamedTuple

from lightstream.runtime.clock import NANOS_PER_SECOND
from lightstream.schemas.records import ANY_RUN, RolloutState, RolloutStatus

from .situation import is_waiting

CLOCK_ERROR_NANOS_MAX = NANOS_PER_SECOND
"""Clocks that are set by the network differ by less, and events are under way for less, as a rule."""


class QueueEntry(NamedTuple):
    """A rollout in a queue. Entries compare in the order in which they are dispatched.

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
    def merge_key(self) -> tuple[int, int, int]:
        """The key by which the queues of several partitions are merged."""
        return self.priority, self.first, self.unix_nano


def queue_time(enqueued_unix_nano: int, logged_unix_nano: int | None) -> int:
    """The time that orders a rollout among rollouts of other partitions.

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
        self._queues: dict[str, list[QueueEntry]] = {}
        self._entry_of: dict[str, tuple[str, QueueEntry]] = {}
        self._changed: dict[str, None] = {}

    def update(self, state: RolloutState) -> str | None:
        """Take a rollout that has changed: it enters its queue, stays in it, or leaves it.

        Returns:
            The run whose queue got longer.
        """
        rollout_id, run_id = state.rollout.rollout_id, state.rollout.run_id
        known = self._entry_of.get(rollout_id)
        entry = (run_id, _entry(state)) if is_waiting(state) else None
        if entry == known:
            return None
        if known is not None:
            del self._entry_of[rollout_id]
            self._remove(*known)
        if entry is not None:
            self._entry_of[rollout_id] = entry
            for queue in {run_id, ANY_RUN}:
                insort(self._queues.setdefault(queue, []), entry[1])
                self._has_changed(queue)
        return run_id if known is None else None

    def first(self, run_id: str = ANY_RUN) -> str | None:
        """The id of that run's rollout that is dispatched next. It stays in the queue until it changes."""
        queue = self._queues.get(run_id)
        return queue[0].rollout_id if queue else None

    def head(self, count: int, run_id: str = ANY_RUN) -> list[QueueEntry]:
        """The first ``count`` entries of that run."""
        return self._queues.get(run_id, [])[:count]

    def length(self, run_id: str = ANY_RUN) -> int:
        """Number of rollouts of that run that wait."""
        return len(self._queues.get(run_id, ()))

    def changed(self) -> list[str]:
        """The runs whose queues have changed since they were :meth:`noted`, the latest first."""
        return list(reversed(self._changed))

    def noted(self, run_id: str) -> None:
        """The run's queue has been reported."""
        self._changed.pop(run_id, None)

    def _remove(self, run_id: str, entry: QueueEntry) -> None:
        for name in {run_id, ANY_RUN}:
            queue = self._queues[name]
            del queue[bisect_left(queue, entry)]
            if not queue:
                del self._queues[name]
            self._has_changed(name)

    def _has_changed(self, run_id: str) -> None:
        self._changed.pop(run_id, None)
        self._changed[run_id] = None


def _entry(state: RolloutState) -> QueueEntry:
    spec = state.rollout
    first = 0 if state.status is RolloutStatus.REQUEUING else 1
    return QueueEntry(-spec.config.priority, first, state.queue_offset, state.queue_unix_nano, spec.rollout_id)
