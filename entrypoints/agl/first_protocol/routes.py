"""The routes of the first protocol, for any store; an entry point of ``lightstream.store_routes`` names them."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from lightstream.schemas.attribute_names import ATTEMPT_ID
from lightstream.schemas.errors import NotFoundError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import AttemptedRollout, AttemptStatus
from lightstream.store_views.stores.http import (
    Dispatched,
    DispatchRoute,
    Parsed,
    Seconds,
    Served,
    Store,
    StoreRoute,
    WriteRoute,
    dequeue,
)

from .messages import ERROR_MESSAGE, ERROR_TYPE, GenericResponse, RolloutLegacy, Task, TaskIfAny
from .report import spans_of

__all__ = ["ROUTES"]

reads = APIRouter(route_class=StoreRoute)
writes = APIRouter(route_class=WriteRoute)
dispatches = APIRouter(route_class=DispatchRoute)


class NextTask(BaseModel):
    """``timeout_s`` and ``worker_id`` are extensions."""

    timeout_s: Seconds = 0.0
    worker_id: str | None = None


@dispatches.get("/task")
async def next_task(serving: Served, query: Parsed[NextTask]) -> Dispatched:
    rollouts = await dequeue(serving, 1, query.worker_id, query.timeout_s)
    answer = TaskIfAny(is_available=True, task=_task(rollouts[0])) if rollouts else TaskIfAny(is_available=False)
    return Dispatched(serving.store, answer, rollouts)


@reads.get("/resources/latest")
async def latest_resources(store: Store) -> Any:
    found = await store.get_latest_resources()
    if found is None:
        raise NotFoundError("No resources have been set on the server.")
    return found


@reads.get("/resources/{resources_id:segment}")
async def resources_by_id(store: Store, resources_id: str) -> Any:
    found = await store.get_resources_by_id(resources_id)
    if found is None:
        raise NotFoundError(f"Resource ID '{resources_id}' not found.")
    return found


@writes.post("/rollout")
async def report_rollout(store: Store, report: Parsed[RolloutLegacy]) -> GenericResponse:
    """Keep the report, then end the attempt: every span of it is durable by then.

    The protocol knows no failure: an error in the metadata (:data:`ERROR_TYPE`, an extension) makes it one.
    """
    attempt_id = report.task.metadata.get(ATTEMPT_ID) if report.task else None
    if not isinstance(attempt_id, str):
        attempt_id = await _latest_attempt(store, report.rollout_id)
    spans, unreadable = spans_of(report, attempt_id)
    await store.add_many_spans(spans)
    error = report.metadata.get(ERROR_TYPE)
    status: AttemptStatus = "succeeded" if error is None else "failed"
    attempt = await store.update_attempt(
        report.rollout_id,
        attempt_id,
        status,
        error_type=None if error is None else str(error),
        error_message=None if error is None else str(report.metadata.get(ERROR_MESSAGE, "")),
    )
    data = {"attempt_id": attempt_id, "spans": len(spans), "unreadable_spans": unreadable}
    if attempt.status == status:
        return GenericResponse(status="ok", message=f"Rollout {report.rollout_id} received and stored.", data=data)
    late = f"Rollout {report.rollout_id} came too late: attempt {attempt_id} is {attempt.status}. It was stored."
    return GenericResponse(status="ignored", message=late, data=data)


async def _latest_attempt(store: LightningStore, rollout_id: str) -> str:
    latest = await store.get_latest_attempt(rollout_id)
    if latest is not None:
        return latest.attempt_id
    if await store.get_rollout_by_id(rollout_id) is None:
        raise NotFoundError(f"Rollout {rollout_id} not found")
    raise NotFoundError(f"No attempts found for rollout {rollout_id}")


def _task(rollout: AttemptedRollout) -> Task:
    return Task(
        rollout_id=rollout.rollout_id,
        input=rollout.input,
        mode=rollout.mode,
        resources_id=rollout.resources_id,
        create_time=rollout.start_time,
        last_claim_time=rollout.attempt.start_time,
        num_claims=rollout.attempt.sequence_id,
        metadata=(rollout.metadata or {}) | {ATTEMPT_ID: rollout.attempt.attempt_id},
    )


ROUTES = [*reads.routes, *dispatches.routes, *writes.routes]
