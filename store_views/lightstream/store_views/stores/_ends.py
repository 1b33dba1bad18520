"""The wait for rollouts to end."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from lightstream.schemas.errors import StoreError
from lightstream.schemas.records import RolloutState
from lightstream.schemas.types import Rollout

from . import _shapes
from ._loop_calls import call_in, gathered

__all__ = ["Ends", "enough"]


def enough(asked: int, count: int | None, share: float | None) -> int:
    """How many of ``asked`` rollouts a waiter needs.

    Raises:
        StoreError: it asks for more than there are, or for none, or what it asks for is not a number.
    """
    _check_number("count", count, int)
    _check_number("share", share, (int, float))
    if count is not None and share is not None:
        raise StoreError("wait for a count or for a share, not for both")
    if count is not None:
        if not 0 < count <= max(asked, 1):
            raise StoreError(f"count is {count}, but there are {asked} rollouts")
        return min(count, asked)
    if share is not None:
        if not 0 < share <= 1:
            raise StoreError(f"share is {share}; it must be above 0 and at most 1")
        return math.ceil(share * asked)
    return asked


def _check_number(what: str, value: Any, kinds: Any) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, kinds)):
        raise StoreError(f"{what} is {value!r:.200}; it must be a number or None")


class Ends:
    """Collects rollouts as they end. Make it in the event loop that waits; :meth:`close` it in the end.

    Args:
        ends: futures of the ends, by rollout.
        needed: so many ended rollouts are enough.

    Attributes:
        ended: those that are over, by id.
        enough: done once there are as many as needed, or as there can be.
    """

    def __init__(self, ends: Mapping[str, Future[RolloutState]], needed: int) -> None:
        self.ended: dict[str, Rollout] = {}
        self._ends = ends
        self._needed = needed
        self._open = set(ends)
        loop = asyncio.get_running_loop()
        self.enough: asyncio.Future[None] = loop.create_future()
        for name, end in ends.items():
            end.add_done_callback(lambda done, name=name: call_in(loop, partial(self._take, name, done)))  # type: ignore[misc]  # bound per rollout

    def add(self, over: Mapping[str, RolloutState]) -> None:
        """These are over."""
        for rollout_id, state in over.items():
            if rollout_id not in self.ended:
                self.ended[rollout_id] = _shapes.rollout_as_it_stands(state)
        self.forget(over)

    def forget(self, rollout_ids: Iterable[str]) -> None:
        """For the end of these nobody needs to wait: they are over, or do not exist."""
        self._open.difference_update(rollout_ids)
        if (len(self.ended) >= self._needed or not self._open) and not self.enough.done():
            self.enough.set_result(None)

    async def within(self, timeout: float | None) -> None:  # noqa: ASYNC109  # part of the answer, not an error
        """Wait until it is enough, or ``timeout`` seconds are over; without one, forever."""
        await asyncio.wait([self.enough], timeout=timeout)

    def close(self) -> None:
        """Take in what has ended by now, and let go of all futures: they are resolved or cancelled then."""
        with gathered():
            for rollout_id, end in self._ends.items():
                if not end.cancel():
                    self._take(rollout_id, end)
        self._ends = {}  # whose callbacks hold this: what ended would stay until cycles are looked for

    def _take(self, rollout_id: str, end: Future[RolloutState]) -> None:
        """As it ends, and not at the end: after the last one, no work for the others is left."""
        if end.cancelled():  # the store was closed
            self.forget([rollout_id])
        else:
            self.add({rollout_id: end.result()})
