"""What several of the contract's tests need."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import AttemptedRollout, OtelResource, Rollout, Span, TraceStatus

T = TypeVar("T")

WAIT_S = 120.0


def unique(prefix: str = "x") -> str:
    """An id that no other test has."""
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


def span_of(rollout: AttemptedRollout, name: str = "work", sequence_id: int = 1, **fields: Any) -> Span:
    """A span of the rollout's attempt."""
    place = {"rollout_id": rollout.rollout_id, "attempt_id": rollout.attempt.attempt_id}
    return bare_span(name=name, sequence_id=sequence_id, **(place | fields))


def bare_span(rollout_id: str, attempt_id: str, name: str, sequence_id: int, **fields: Any) -> Span:
    """A span of an attempt that may not exist."""
    values: dict[str, Any] = {
        "rollout_id": rollout_id,
        "attempt_id": attempt_id,
        "sequence_id": sequence_id,
        "trace_id": uuid.uuid4().hex,
        "span_id": uuid.uuid4().hex[:16],
        "parent_id": None,
        "name": name,
        "status": TraceStatus(status_code="OK"),
        "attributes": {"number": 1, "text": "é", "flag": True, "list": ["a", "b"]},
        "events": [],
        "links": [],
        "start_time": 1_700_000_000.25,
        "end_time": 1_700_000_001.5,
        "context": None,
        "parent": None,
        "resource": OtelResource(attributes={"service.name": "test"}, schema_url=""),
    }
    return Span.model_validate(values | fields)


async def taken(store: LightningStore, worker_id: str | None = None) -> AttemptedRollout:
    """The next rollout of the queue, which must have one."""
    rollout = await store.dequeue_rollout(worker_id)
    assert rollout is not None
    return rollout


async def begun(store: LightningStore, **arguments: Any) -> AttemptedRollout:
    """A rollout started past the queue."""
    return await store.start_rollout({"task": 1}, **arguments)


async def reached(store: LightningStore, rollout_id: str, *statuses: str) -> Rollout:
    """The rollout, once it has one of these statuses."""
    async with asyncio.timeout(WAIT_S):
        while True:
            rollout = await store.get_rollout_by_id(rollout_id)
            if rollout is not None and rollout.status in statuses:
                return rollout
            await asyncio.sleep(0.02)


async def under_way(call: Coroutine[Any, Any, T], later: Awaitable[object]) -> asyncio.Task[T]:
    """A call that waits by now: not after some time, but once a call that was made behind it has been answered.

    Args:
        later: the same call, with little time of its own; it goes the same way, and finds nothing either.
    """
    waiting = asyncio.create_task(call)
    await asyncio.sleep(0)  # a turn of the loop: it goes as far as it can
    await later
    assert not waiting.done()
    return waiting


async def cancel_what_is_left(store: LightningStore) -> None:
    """Leave nothing that another test could dequeue."""
    for rollout in await store.query_rollouts(status_in=["queuing", "requeuing", "preparing", "running"]):
        await store.cancel_rollout(rollout.rollout_id)
