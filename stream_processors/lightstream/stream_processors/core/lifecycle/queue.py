"""The rollouts of one partition that wait for an attempt, in the order in which they are handed out."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import NamedTuple

from lightstream.schemas.clock import NANOS_PER_SECOND
from lightstream.schemas.records import RolloutState, RolloutStatus

from .situation import is_waiting

__all__ = ["Turn", "WaitingRollouts", "queue_time"]

CLOCK_ERROR_NANOS_MAX = NANOS_PER_SECOND
"""Clocks that are set by the network differ by less, and facts are under way for less, as a rule."""


class Turn(NamedTuple):
    """Compares as the queue of a partition goes.

    Attributes:
        priority: negated.
        first: 0 for a retry, 1 for a first attempt.
        offset: of the fact that made the rollout: its age, whatever the clocks say.
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
    """A queue by priority, then retries before first attempts, then age.

    Cost: a few microseconds per change, up to some hundred thousand that wait at once (a sorted list: changes move
    pointers, at most 8 bytes each).
    """

    def __init__(self) -> None:
        self._turns: list[Turn] = []
        self._turn_of: dict[str, Turn] = {}

    def __len__(self) -> int:
        return len(self._turns)

    def update(self, state: RolloutState) -> None:
        """The rollout has changed: it queues, keeps its place, or waits no more."""
        rollout_id = state.rollout.rollout_id
        known = self._turn_of.get(rollout_id)
        turn = _turn(state) if is_waiting(state) else None
        if turn == known:
            return
        if known is not None:
            del self._turns[bisect_left(self._turns, known)]
            del self._turn_of[rollout_id]
        if turn is not None:
            insort(self._turns, turn)
            self._turn_of[rollout_id] = turn

    def first(self) -> str | None:
        """The id of the rollout whose turn it is. It stays in the queue until it changes."""
        return self._turns[0].rollout_id if self._turns else None

    def head(self, count: int) -> list[Turn]:
        """The first ``count`` turns."""
        return self._turns[:count]


def _turn(state: RolloutState) -> Turn:
    spec = state.rollout
    first = 0 if state.status is RolloutStatus.REQUEUING else 1
    return Turn(-spec.config.priority, first, state.queue_offset, state.queue_unix_nano, spec.rollout_id)
