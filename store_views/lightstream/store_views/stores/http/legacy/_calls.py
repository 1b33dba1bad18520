"""What the store does for each route of the first protocol."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, Field

from lightstream.schemas.attribute_names import ATTEMPT_ID, ERROR_MESSAGE, ERROR_TYPE
from lightstream.schemas.errors import NotFoundError
from lightstream.schemas.types import AttemptedRollout, AttemptStatus, GenericResponse, RolloutLegacy, Task, TaskIfAny

from .. import _calls as calls
from .._calls import Call, HandedOut
from .._requests import DequeueRollouts
from ._report import spans_of

__all__ = ["NextTask", "latest_resources", "next_task", "report_rollout", "resources_by_id"]


class NextTask(BaseModel):
    """``timeout_s`` and ``worker_id`` are extensions."""

    timeout_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    worker_id: str | None = None


async def next_task(call: Call) -> Any:
    asked = DequeueRollouts(limit=1, timeout_s=call.asked.timeout_s, worker_id=call.asked.worker_id)
    taken = await calls.dequeue_rollouts(replace(call, asked=asked))
    if not taken.rollouts:
        return TaskIfAny(is_available=False)
    return HandedOut(TaskIfAny(is_available=True, task=_task(taken.rollouts[0])), taken.rollouts)


async def latest_resources(call: Call) -> Any:
    found = await call.store.get_latest_resources()
    if found is None:
        raise NotFoundError("No resources have been set on the server.")
    return found


async def resources_by_id(call: Call) -> Any:
    found = await call.store.get_resources_by_id(call.ids["resources_id"])
    if found is None:
        raise NotFoundError(f"Resource ID '{call.ids['resources_id']}' not found.")
    return found


async def report_rollout(call: Call) -> Any:
    """Keeps what was reported, then ends the attempt: every span of it is durable by then.

    The protocol knows no failure: an error in the metadata (:data:`ERROR_TYPE`, an extension) makes it one.
    """
    report: RolloutLegacy = call.asked
    attempt_id = report.task.metadata.get(ATTEMPT_ID) if report.task else None
    if not isinstance(attempt_id, str):
        attempt_id = await _latest_attempt(call, report.rollout_id)
    spans, unreadable = spans_of(report, attempt_id)
    await call.store.add_many_spans(spans)
    error = report.metadata.get(ERROR_TYPE)
    status: AttemptStatus = "succeeded" if error is None else "failed"
    attempt = await call.store.update_attempt(
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


async def _latest_attempt(call: Call, rollout_id: str) -> str:
    latest = await call.store.get_latest_attempt(rollout_id)
    if latest is not None:
        return latest.attempt_id
    if await call.store.get_rollout_by_id(rollout_id) is None:
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
