"""Callers that wait for rollouts to end."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager

from lightstream.schemas.errors import LightstreamError
from lightstream.schemas.records import RolloutState


class Waiting:
    """One caller's wait.

    Attributes:
        ended: those of its rollouts that are over, by id.
        enough: done once there are as many as needed, or as there can be.
        failure: why no more can be told of, if that is so.
    """

    def __init__(self, rollout_ids: Iterable[str], needed: int) -> None:
        self.ended: dict[str, RolloutState] = {}
        self.failure: LightstreamError | None = None
        self.enough: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._needed = needed
        self._open = set(rollout_ids)

    def add(self, over: Mapping[str, RolloutState]) -> None:
        """Add ended rollouts; earlier knowledge stays."""
        for rollout_id, state in over.items():
            self.ended.setdefault(rollout_id, state)
        self.forget(over)

    def forget(self, rollout_ids: Iterable[str]) -> None:
        """Nothing more is to come of these: they are over, or do not exist."""
        self._open.difference_update(rollout_ids)
        if len(self.ended) >= self._needed or not self._open:
            self.end()

    def end(self) -> None:
        """Wait for nothing more."""
        if not self.enough.done():
            self.enough.set_result(None)

    async def until_enough(self, timeout: float | None) -> None:  # noqa: ASYNC109  # part of the answer, not an error
        """Wait until it is enough, or ``timeout`` seconds are over; without one, forever.

        Raises:
            LightstreamError: no more ends can be told of, and there are not enough.
        """
        await asyncio.wait([self.enough], timeout=timeout)
        self.check()

    def check(self) -> None:
        """As :meth:`until_enough`, without waiting."""
        if self.failure is not None and len(self.ended) < self._needed:
            raise self.failure


class Endings:
    """Tells waiters of each rollout that ends. Belongs to one event loop."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Waiting]] = {}
        self._failure: LightstreamError | None = None

    def awaits(self, rollout_id: str) -> bool:
        """Whether anybody waits for that rollout."""
        return rollout_id in self._waiting

    @contextmanager
    def expect(self, rollout_ids: Sequence[str], needed: int) -> Generator[Waiting]:
        """Wait for the ends of these rollouts that are told of within the block.

        Args:
            rollout_ids: each once.
            needed: so many are enough.
        """
        waiting = Waiting(rollout_ids, needed)
        if self._failure is not None:
            waiting.failure = self._failure
            waiting.end()
        for rollout_id in rollout_ids:
            self._waiting.setdefault(rollout_id, []).append(waiting)
        try:
            yield waiting
        finally:
            for rollout_id in rollout_ids:
                others = [other for other in self._waiting.get(rollout_id, ()) if other is not waiting]
                if others:
                    self._waiting[rollout_id] = others
                else:
                    self._waiting.pop(rollout_id, None)

    def ended(self, state: RolloutState) -> None:
        """A rollout is over."""
        for waiting in self._waiting.get(state.rollout.rollout_id, ()):
            waiting.add({state.rollout.rollout_id: state})

    def close(self, failure: LightstreamError | None = None) -> None:
        """Nothing more will be told of; with a failure, calls that wait raise it."""
        self._failure = self._failure or failure
        for waiting in [waiting for each in self._waiting.values() for waiting in each]:
            waiting.failure = self._failure
            waiting.end()
