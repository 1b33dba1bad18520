"""Rollouts that were dispatched to a client which never got them, back into the queue."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Iterable
from dataclasses import dataclass

from lightstream.schemas.errors import LightstreamError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import AttemptedRollout, Rollout

__all__ = ["Place", "give_back", "places_of", "untouched"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Place:
    """Which attempt of which rollout was dispatched."""

    rollout_id: str
    attempt_id: str


def places_of(rollouts: Iterable[AttemptedRollout]) -> tuple[Place, ...]:
    """The attempts that these are dispatched with."""
    return tuple(Place(rollout.rollout_id, rollout.attempt.attempt_id) for rollout in rollouts)


async def untouched(store: LightningStore, places: Iterable[Place]) -> list[Place]:
    """Those of them that nobody has begun to work on, and no deadline has ended."""
    found = [(place, await store.get_rollout_by_id(place.rollout_id)) for place in places]
    return [place for place, rollout in found if _is_untouched(place, rollout)]


def _is_untouched(place: Place, rollout: Rollout | None) -> bool:
    if not isinstance(rollout, AttemptedRollout) or rollout.status != "preparing":
        return False
    return rollout.attempt.attempt_id == place.attempt_id


async def give_back(store: LightningStore, places: Iterable[Place]) -> None:
    """Queue them again. One for which that fails is logged: it counts as unresponsive in the end."""
    for place in places:
        # In a context of its own, where ids are new: to give back the same rollout twice is two writes.
        queueing = asyncio.create_task(_queue_again(store, place), context=contextvars.Context())
        await asyncio.wait({queueing})


async def _queue_again(store: LightningStore, place: Place) -> None:
    try:
        await store.update_rollout(place.rollout_id, status="requeuing")
    except (LightstreamError, ValueError, NotImplementedError) as error:
        logger.warning("rollout %s was not given back: %s", place.rollout_id, error)
