"""Readers who name no offsets see what had been fetched when they asked."""

from __future__ import annotations

from functools import partial

from ..materialiser import Materialiser
from .answering import Answering
from .lanes import Lane

__all__ = ["wait_for_fetched"]

FRESH_WAIT_S = 0.1
"""For which a query that names no offset waits for what has been fetched."""


async def wait_for_fetched(materialiser: Materialiser, answering: Answering, lane: Lane) -> None:
    """Let what has been fetched already be seen, if that takes no longer than a reader would notice.

    Where others wait in all places of the lane, what is there has to do.
    """
    positions = materialiser.positions
    positions.look()
    fetched = materialiser.fetched()
    if materialiser.rebuilding is not None or lane.catching_up.are_taken:
        return
    if positions.missing(fetched):
        await answering.catch_up(lane, partial(positions.wait_for, fetched, FRESH_WAIT_S, urgent=False))
