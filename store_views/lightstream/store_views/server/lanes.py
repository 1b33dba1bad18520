"""Lanes: statements wait only for others of their kind."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from lightstream.schemas.errors import QueryError, ServiceUnavailableError

__all__ = ["LANES", "LANE_HEADER", "Lane", "LaneSize", "lane_named"]

LANE_HEADER = "x-lightstream-lane"
"""A request's header that names its lane."""

QUEUE_S_MAX = 30.0
"""Longest wait for a place."""


@dataclass(frozen=True, slots=True)
class LaneSize:
    """The statements that a lane may take at once, and how.

    Attributes:
        at_once: statements that run at once.
        waiting_max: how many may wait beside them.
        nice: how far their threads are behind those of training, of pages, and of the materialiser, as of ``nice(1)``.
    """

    at_once: int
    waiting_max: int
    nice: int = 0


LANES: Mapping[str, LaneSize] = {
    "stores": LaneSize(at_once=4, waiting_max=512),
    "dashboard": LaneSize(at_once=3, waiting_max=64),
    "others": LaneSize(at_once=4, waiting_max=32, nice=10),
}
"""Queries of training, of pages, and all others: a lane that is full keeps nobody waiting in another."""


class Lane:
    """Places of one kind of statement. Belongs to one event loop."""

    def __init__(self, name: str, size: LaneSize) -> None:
        self.name = name
        self.nice = size.nice
        self._size = size
        self._places = asyncio.Semaphore(size.at_once)
        self._waiting = 0

    async def enter(self) -> None:
        """Wait for a place; whoever got one calls :meth:`leave`.

        Raises:
            ServiceUnavailableError: too many wait, or it took too long.
        """
        if self._places.locked() and self._waiting >= self._size.waiting_max:
            raise self._full(f"{self._waiting} wait")
        self._waiting += 1
        try:
            async with asyncio.timeout(QUEUE_S_MAX):
                await self._places.acquire()
        except TimeoutError:
            raise self._full(f"none ended within {QUEUE_S_MAX:g} s") from None
        finally:
            self._waiting -= 1

    def leave(self) -> None:
        """Give the place to who waits next."""
        self._places.release()

    def _full(self, why: str) -> ServiceUnavailableError:
        return ServiceUnavailableError(
            f"the lane {self.name!r} is full: {self._size.at_once} statements run and {why}.",
            next_step="Ask again in a moment, or end one: GET /v1/queries lists them, DELETE /v1/queries/ID cancels.",
        )


def lane_named(headers: Mapping[str, str]) -> str:
    """Return the name of a request's lane.

    Raises:
        QueryError: there is no such lane.
    """
    name = headers.get(LANE_HEADER, "others")
    if name not in LANES:
        raise QueryError(f"{LANE_HEADER} is {name!r:.100}; there are {', '.join(LANES)}.")
    return name
