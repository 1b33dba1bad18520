"""Calls that wait until the server stops, and rollouts that were dispatched to a client which never got them."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Iterable, Sequence
from typing import TypeVar

from lightstream.schemas.errors import LightstreamError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import AttemptedRollout

from ._answers import StoppingError, attempts_of

logger = logging.getLogger(__name__)

T = TypeVar("T")


async def unless_stopping(stopping: asyncio.Event, reading: Awaitable[T]) -> T:
    """Return the result of something that changes nothing. Cancelling this cancels that.

    Raises:
        StoppingError: the server stops first.
    """
    task, stop = asyncio.ensure_future(reading), asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise StoppingError("the store server is being stopped.", next_step="Ask again in a moment.")
        return task.result()
    finally:
        stop.cancel()
        task.cancel()


async def dequeued(
    stopping: asyncio.Event, store: LightningStore, dequeueing: Awaitable[Sequence[AttemptedRollout]], *, waits: bool
) -> Sequence[AttemptedRollout]:
    """Return the result of a dequeue: nothing, when the server stops before there is something.

    Where this is cancelled, what it takes all the same is requeued.

    Args:
        waits: it waits for work, and may be interrupted in that; else it runs to its end.
    """
    task, stop = asyncio.ensure_future(dequeueing), asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait({task, stop} if waits else {task}, return_when=asyncio.FIRST_COMPLETED)
        return await _ended(task, interrupt=waits)
    except asyncio.CancelledError:
        await requeue(store, attempts_of(await _ended(task, interrupt=waits)))
        raise
    finally:
        stop.cancel()


async def _ended(task: asyncio.Future[Sequence[AttemptedRollout]], *, interrupt: bool) -> Sequence[AttemptedRollout]:
    if interrupt:
        task.cancel()
    await asyncio.wait({task})
    return () if task.cancelled() else task.result()


async def requeue(store: LightningStore, attempts: Iterable[tuple[str, str]]) -> None:
    """Put rollouts back into the queue whose attempts are still open.

    One for which that fails is logged: it counts as unresponsive in the end.
    """
    for rollout_id, attempt_id in attempts:
        # In a context of its own, where ids are new: to requeue the same rollout twice is two writes.
        requeueing = asyncio.create_task(_requeue(store, rollout_id, attempt_id), context=contextvars.Context())
        await asyncio.wait({requeueing})


async def _requeue(store: LightningStore, rollout_id: str, attempt_id: str) -> None:
    try:
        await store.update_rollout(rollout_id, status="requeuing", if_attempt=attempt_id)
    except (LightstreamError, ValueError, NotImplementedError) as error:
        logger.warning("rollout %s was not requeued: %s", rollout_id, error)


async def requeue_unused(store: LightningStore, attempts: Iterable[tuple[str, str]]) -> None:
    """Put rollouts back into the queue that nobody has begun to work on, and no deadline has ended."""
    found = [(attempt, await store.get_rollout_by_id(attempt[0])) for attempt in attempts]
    unused = [
        attempt
        for attempt, rollout in found
        if isinstance(rollout, AttemptedRollout)
        and rollout.status == "preparing"
        and rollout.attempt.attempt_id == attempt[1]
    ]
    await requeue(store, unused)
