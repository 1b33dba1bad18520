"""Lanes: statements wait only for others of their kind."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from lightstream.schemas.errors import QueryError, ServiceUnavailableError

__all__ = ["LANES", "LANE_HEADER", "Lane", "LaneSize", "Places", "lane_named"]

LANE_HEADER = "x-lightstream-lane"
"""A request's header that names its lane."""

QUEUE_S_MAX = 30.0
"""Longest wait for a place."""


@dataclass(frozen=True, slots=True)
class LaneSize:
    """The statements that a lane may take at once, and how.

    Attributes:
        at_once: statements that run at once.
        waiting_max: how many may wait for each kind of place.
        catching_up_max: requests at once whose statements are to wait until the view has caught up: a thread each,
            asleep.
        nice: how far their threads are behind those of training, of pages, and of the materialiser, as of ``nice(1)``.
    """

    at_once: int
    waiting_max: int
    catching_up_max: int
    nice: int = 0


LANES: Mapping[str, LaneSize] = {
    "stores": LaneSize(at_once=4, waiting_max=512, catching_up_max=200),
    "dashboard": LaneSize(at_once=3, waiting_max=64, catching_up_max=64),
    "others": LaneSize(at_once=4, waiting_max=32, catching_up_max=64, nice=10),
}
"""Queries of training, of pages, and all others: a lane that is full keeps nobody waiting in another."""


class Places:
    """Places of one kind in a lane, and a queue for them. Belongs to one event loop.

    Args:
        lane: its name.
        taken_by: what has the places, as the error says it.
        next_step: what to do where they are taken, and the queue is full.
    """

    def __init__(self, lane: str, at_once: int, waiting_max: int, taken_by: str, next_step: str) -> None:
        self._lane = lane
        self._at_once = at_once
        self._waiting_max = waiting_max
        self._taken_by = taken_by
        self._next_step = next_step
        self._places = asyncio.Semaphore(at_once)
        self._waiting = 0

    @property
    def are_taken(self) -> bool:
        """Whether who enters now has to wait."""
        return self._places.locked()

    async def enter(self) -> None:
        """Wait for a place; whoever got one calls :meth:`leave`.

        Raises:
            ServiceUnavailableError: too many wait, or it took too long.
        """
        if self.are_taken and self._waiting >= self._waiting_max:
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
            f"the lane {self._lane!r} is full: {self._at_once} {self._taken_by} and {why}.", next_step=self._next_step
        )


class Lane(Places):
    """Places of one kind of statement; and ``catching_up``, those to wait in until the view has what it must show."""

    def __init__(self, name: str, size: LaneSize) -> None:
        super().__init__(
            name,
            size.at_once,
            size.waiting_max,
            "statements run",
            "Ask again in a moment, or end one: GET /v1/queries lists them, DELETE /v1/queries/ID cancels.",
        )
        self.name = name
        self.nice = size.nice
        self.catching_up = Places(
            name,
            size.catching_up_max,
            size.waiting_max,
            "requests wait for the view to catch up",
            "Ask again in a moment; a shorter wait_s frees places sooner.",
        )


def lane_named(headers: Mapping[str, str], default: str = "others") -> str:
    """Return the name of a request's lane; ``default`` where it names none.

    Raises:
        QueryError: there is no such lane.
    """
    name = headers.get(LANE_HEADER, default)
    if name not in LANES:
        raise QueryError(f"{LANE_HEADER} is {name!r:.100}; there are {', '.join(LANES)}.")
    return name
