"""Bodies of requests (and query strings of GET), in Agent Lightning's shape; the second half of a model is ours.

What does not fit is answered with 422, as there; what fits and cannot be done, by the store's error. Fields that are
unknown are ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, RootModel

from lightstream.schemas.records import ANY_RUN, WorkerHeartbeat
from lightstream.schemas.types import (
    AttemptStatus,
    EnqueueRolloutRequest,
    ResourceUnion,
    RolloutConfig,
    RolloutMode,
    RolloutStatus,
    Span,
    WorkerStatus,
)

__all__ = [
    "AddManySpans",
    "CancelRollout",
    "DequeueRollouts",
    "EnqueueRollouts",
    "GiveBack",
    "Heartbeat",
    "LookAtResources",
    "ManySequenceIds",
    "NextSequenceId",
    "NoBody",
    "QueryAttempts",
    "QueryResources",
    "QueryRollouts",
    "QuerySpans",
    "QueryWorkers",
    "Resources",
    "StartAttempt",
    "StartRollout",
    "UpdateAttempt",
    "UpdateRollout",
    "UpdateWorker",
    "WaitForRollouts",
]

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class NoBody(BaseModel):
    """Nothing is asked but by the path."""


class _Page(BaseModel):
    limit: int = -1
    offset: int = 0
    sort_by: str | None = None
    sort_order: Literal["asc", "desc"] = "asc"


class EnqueueRollouts(BaseModel):
    rollouts: list[EnqueueRolloutRequest]


class StartRollout(EnqueueRolloutRequest):
    worker_id: str | None = None


class DequeueRollouts(BaseModel):
    limit: int = 1
    worker_id: str | None = None
    timeout_s: Seconds = 0.0
    run_id: str = ANY_RUN


class GiveBack(BaseModel):
    """``key``: the idempotency key of the request that was answered with rollouts."""

    key: str


class StartAttempt(BaseModel):
    worker_id: str | None = None


class QueryRollouts(_Page):
    status_in: list[RolloutStatus] | None = None
    rollout_id_in: list[str] | None = None
    rollout_id_contains: str | None = None
    filter_logic: Literal["and", "or"] = "and"
    status: list[RolloutStatus] | None = None
    rollout_ids: list[str] | None = None
    rollout_id_prefix: str | None = None
    started_after: float | None = None
    started_before: float | None = None


class WaitForRollouts(BaseModel):
    rollout_ids: list[str]
    timeout: Annotated[float, Field(allow_inf_nan=False)] | None = None
    count: int | None = None
    share: float | None = None


class UpdateRollout(BaseModel):
    """A field that is left out stays as it is; ``null`` is a value."""

    input: Any = None
    mode: RolloutMode | None = None
    resources_id: str | None = None
    status: RolloutStatus | None = None
    config: RolloutConfig | None = None
    metadata: dict[str, Any] | None = None


class CancelRollout(BaseModel):
    reason: str = ""


class QueryAttempts(_Page):
    sort_by: str | None = "sequence_id"


class UpdateAttempt(BaseModel):
    """A field that is left out stays as it is; ``null`` is a value."""

    status: AttemptStatus | None = None
    worker_id: str | None = None
    last_heartbeat_time: float | None = None
    metadata: dict[str, Any] | None = None
    error_type: str | None = None
    error_message: str | None = None


class Heartbeat(BaseModel):
    worker: WorkerHeartbeat
    attempts: list[tuple[str, str]]


class AddManySpans(BaseModel):
    spans: list[Span]


class QuerySpans(_Page):
    rollout_id: str
    attempt_id: str | None = None
    trace_id: str | None = None
    trace_id_contains: str | None = None
    span_id: str | None = None
    span_id_contains: str | None = None
    parent_id: str | None = None
    parent_id_contains: str | None = None
    name: str | None = None
    name_contains: str | None = None
    filter_logic: Literal["and", "or"] = "and"
    sort_by: str | None = "sequence_id"


class NextSequenceId(BaseModel):
    rollout_id: str
    attempt_id: str


class ManySequenceIds(BaseModel):
    rollout_attempt_ids: list[tuple[str, str]]


class Resources(RootModel[dict[str, ResourceUnion]]):
    """Name -> resource."""


class QueryResources(_Page):
    resources_id: str | None = None
    resources_id_contains: str | None = None


class LookAtResources(BaseModel):
    timeout_s: Seconds = 0.0


class QueryWorkers(_Page):
    status_in: list[WorkerStatus] | None = None
    worker_id_contains: str | None = None
    filter_logic: Literal["and", "or"] = "and"


class UpdateWorker(BaseModel):
    """Without ``heartbeat_stats`` the worker keeps those it has."""

    heartbeat_stats: dict[str, Any] | None = None
