"""The routes of Agent Lightning 0.3, and ours beyond them; for each the form of its body and what the store does.

What does not fit a form is answered with 422, as there; what fits and cannot be done, by the store's error. Fields that
are unknown are ignored. In a form, and in a query string, the fields after Agent Lightning's own are ours.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any, get_args

from fastapi import APIRouter
from pydantic import AfterValidator, BaseModel, Field, RootModel
from starlette.requests import Request

from lightstream.schemas.errors import StoreError
from lightstream.schemas.records import ANY_RUN, WorkerHeartbeat
from lightstream.schemas.types import (
    AttemptedRollout,
    AttemptStatus,
    EnqueueRolloutRequest,
    ResourcesUpdate,
    ResourceUnion,
    RolloutConfig,
    RolloutMode,
    RolloutStatus,
    Span,
    WorkerStatus,
)

from ..queries import AttemptQuery, Query, ResourcesQuery, RolloutQuery, SpanQuery, WorkerQuery
from ._answers import Answer
from ._dispatch import dequeued, requeue_unused, unless_stopping
from ._route import (
    Asked,
    Dispatched,
    DispatchRoute,
    OptionalBody,
    Served,
    Serving,
    Store,
    StoreRoute,
    WaitRoute,
    WriteRoute,
)
from ._wire import ASKS_AGAIN, PREFIX, REQUEUE_PATH, TRACES_PATH, UNFINISHED, WAIT_S_MAX

__all__ = ["ROUTES", "dequeue"]

CUT_SLACK_S = 0.1
"""A wait that returns this much before the end of its slice may have been ended by it: clocks differ."""

reads = APIRouter(prefix=PREFIX, route_class=StoreRoute)
waits = APIRouter(prefix=PREFIX, route_class=WaitRoute)
writes = APIRouter(prefix=PREFIX, route_class=WriteRoute)
dispatches = APIRouter(prefix=PREFIX, route_class=DispatchRoute)

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def _arguments(query: Query) -> dict[str, Any]:
    """Return the query as arguments of the store's method.

    Raises:
        StoreError: the page has no room.
    """
    if query.limit == 0:
        raise StoreError("limit is 0; it must be a number of items from 1 up, or -1 for all")
    return dict(query)


def _one_of(statuses: Any) -> Any:
    """Check that a filter's values are among the ``statuses``, a ``Literal``."""
    known = get_args(statuses)

    def check(values: list[str] | None) -> list[str] | None:
        for value in values or ():
            if value not in known:
                raise ValueError(f"{value!r} is none of {', '.join(known)}")
        return values

    return AfterValidator(check)


# --- the server


@reads.get("/health")
async def health() -> Any:
    return {"status": "ok"}


@reads.get("/statistics")
async def statistics(store: Store) -> Any:
    return await store.statistics()


@reads.get("/capabilities")
async def capabilities(serving: Served) -> Any:
    """Extension."""
    return serving.store.capabilities | ({"otlp_traces": True} if serving.takes_traces else {})


@reads.get("/otlp-traces-endpoint")
async def otlp_traces_endpoint(serving: Served) -> Any:
    """Extension. Answers with a path of this server, else with the gateway's URL; ``null`` where none runs."""
    if serving.takes_traces:
        return TRACES_PATH
    return serving.store.otlp_traces_endpoint() if serving.store.capabilities.get("otlp_traces") else None


# --- rollouts


class EnqueueRollouts(BaseModel):
    rollouts: list[EnqueueRolloutRequest]


@writes.post("/queues/rollouts/enqueue", status_code=201)
async def enqueue_rollouts(store: Store, asked: Asked[EnqueueRollouts]) -> Any:
    return await store.enqueue_many_rollouts(asked.rollouts)


class DequeueRollouts(OptionalBody):
    limit: int = 1
    worker_id: str | None = None
    timeout_s: Seconds = 0.0
    run_id: str = ANY_RUN


@dispatches.post("/queues/rollouts/dequeue")
async def dequeue_rollouts(serving: Served, asked: Asked[DequeueRollouts]) -> Dispatched:
    taken = await dequeue(serving, asked.limit, asked.worker_id, asked.timeout_s, asked.run_id)
    return Dispatched(serving.store, taken, taken)


async def dequeue(
    serving: Serving, limit: int, worker_id: str | None, timeout_s: float, run_id: str = ANY_RUN
) -> list[AttemptedRollout]:
    """Dispatch rollouts, for which to wait up to ``timeout_s``, or until the server stops."""
    if limit <= 0:
        return []
    wait_s = timeout_s or None
    run = None if run_id == ANY_RUN else run_id  # which every store dispatches if nothing else is said
    dequeueing = serving.store.dequeue_many_rollouts(
        limit=limit, worker_id=worker_id, **_without_none(timeout_s=wait_s, run_id=run)
    )
    return list(await dequeued(serving.stopping, serving.store, dequeueing, waits=wait_s is not None))


class Requeue(BaseModel):
    """``key``: the idempotency key of the request that was answered with rollouts."""

    key: str


@reads.post(REQUEUE_PATH)
async def requeue_rollouts(serving: Served, asked: Asked[Requeue]) -> None:
    """Extension. The client did not wait for the answer to that request of its, or lost it."""
    answer = await serving.answers.forget(asked.key, though_awaited=True)
    await requeue_unused(serving.store, answer.dispatched if answer else ())


class StartRollout(EnqueueRolloutRequest):
    worker_id: str | None = None


@writes.post("/rollouts", status_code=201)
async def start_rollout(store: Store, asked: Asked[StartRollout]) -> Any:
    extensions = {name: getattr(asked, name) for name in ("rollout_id", "run_id", "group_id", "group_size", "assembly")}
    return await store.start_rollout(
        asked.input,
        asked.mode,
        asked.resources_id,
        asked.config,
        asked.metadata,
        asked.worker_id,
        **_without_none(**extensions),
    )


class QueryRollouts(RolloutQuery):
    """``status`` and ``rollout_ids`` are former names of ``status_in`` and ``rollout_id_in``."""

    status_in: Annotated[list[str] | None, _one_of(RolloutStatus)] = None
    status: Annotated[list[str] | None, _one_of(RolloutStatus)] = None
    rollout_ids: list[str] | None = None


@reads.get("/rollouts")
@reads.post("/rollouts/search")
async def query_rollouts(store: Store, asked: Asked[QueryRollouts]) -> Any:
    return await store.query_rollouts(**_arguments(asked))


@reads.get("/rollouts/{rollout_id:segment}")
async def get_rollout(store: Store, rollout_id: str) -> Any:
    return await store.get_rollout_by_id(rollout_id)


class UpdateRollout(BaseModel):
    """A field that is left out stays as it is; ``null`` is a value."""

    input: Any = None
    mode: RolloutMode | None = None
    resources_id: str | None = None
    status: RolloutStatus | None = None
    config: RolloutConfig | None = None
    metadata: dict[str, Any] | None = None
    if_attempt: str | None = None


@writes.post("/rollouts/{rollout_id:segment}")
async def update_rollout(store: Store, rollout_id: str, asked: Asked[UpdateRollout]) -> Any:
    return await store.update_rollout(rollout_id, **_given(asked))


class CancelRollout(OptionalBody):
    reason: str = ""


@writes.post("/rollouts/{rollout_id:segment}/cancel")
async def cancel_rollout(store: Store, rollout_id: str, asked: Asked[CancelRollout]) -> Any:
    """Extension."""
    return await store.cancel_rollout(rollout_id, asked.reason)


class WaitForRollouts(BaseModel):
    rollout_ids: list[str]
    timeout: Annotated[float, Field(allow_inf_nan=False)] | None = None
    count: int | None = None
    share: float | None = None


@waits.post("/waits/rollouts")
async def wait_for_rollouts(request: Request, serving: Served, asked: Asked[WaitForRollouts]) -> Any:
    wait_s = None if asked.timeout is None else max(0.0, asked.timeout)
    slice_s = min(math.inf if wait_s is None else wait_s, WAIT_S_MAX) if ASKS_AGAIN in request.headers else wait_s
    began = time.monotonic()
    waiting = serving.store.wait_for_rollouts(
        rollout_ids=asked.rollout_ids, timeout=slice_s, **_without_none(count=asked.count, share=asked.share)
    )
    done = await unless_stopping(serving.stopping, waiting)
    is_cut = slice_s is not None and slice_s != wait_s and time.monotonic() - began >= slice_s - CUT_SLACK_S
    return Answer(done, headers={UNFINISHED: "1"}) if is_cut else done


# --- attempts


class StartAttempt(OptionalBody):
    worker_id: str | None = None


@writes.post("/rollouts/{rollout_id:segment}/attempts", status_code=201)
async def start_attempt(store: Store, rollout_id: str, asked: Asked[StartAttempt]) -> Any:
    return await store.start_attempt(rollout_id, asked.worker_id)


@reads.get("/rollouts/{rollout_id:segment}/attempts")
@reads.post("/rollouts/{rollout_id:segment}/attempts/search")
async def query_attempts(store: Store, rollout_id: str, asked: Asked[AttemptQuery]) -> Any:
    return await store.query_attempts(rollout_id, **_arguments(asked))


@reads.get("/rollouts/{rollout_id:segment}/attempts/latest")
async def latest_attempt(store: Store, rollout_id: str) -> Any:
    return await store.get_latest_attempt(rollout_id)


class UpdateAttempt(BaseModel):
    """A field that is left out stays as it is; ``null`` is a value."""

    status: AttemptStatus | None = None
    worker_id: str | None = None
    last_heartbeat_time: float | None = None
    metadata: dict[str, Any] | None = None
    error_type: str | None = None
    error_message: str | None = None


@writes.post("/rollouts/{rollout_id:segment}/attempts/{attempt_id:segment}")
async def update_attempt(store: Store, rollout_id: str, attempt_id: str, asked: Asked[UpdateAttempt]) -> Any:
    given = _given(asked)
    reason = {name: given.pop(name, None) for name in ("error_type", "error_message")}
    return await store.update_attempt(rollout_id, attempt_id, **given, **_without_none(**reason))


# --- spans


@writes.post("/spans", status_code=201)
async def add_span(store: Store, asked: Asked[Span]) -> Any:
    return await store.add_span(asked)


class AddManySpans(BaseModel):
    spans: list[Span]


@writes.post("/spans/batch", status_code=201)
async def add_many_spans(store: Store, asked: Asked[AddManySpans]) -> Any:
    """Extension."""
    return await store.add_many_spans(asked.spans)


class QuerySpans(SpanQuery):
    rollout_id: str
    attempt_id: str | None = None


@reads.get("/spans")
@reads.post("/spans/search")
async def query_spans(store: Store, asked: Asked[QuerySpans]) -> Any:
    arguments = _arguments(asked)
    return await store.query_spans(arguments.pop("rollout_id"), arguments.pop("attempt_id"), **arguments)


class NextSequenceId(BaseModel):
    rollout_id: str
    attempt_id: str


@writes.post("/spans/next")
async def next_sequence_id(store: Store, asked: Asked[NextSequenceId]) -> Any:
    return {"sequence_id": await store.get_next_span_sequence_id(asked.rollout_id, asked.attempt_id)}


class ManySequenceIds(BaseModel):
    rollout_attempt_ids: list[tuple[str, str]]


@writes.post("/spans/next/batch")
async def many_sequence_ids(store: Store, asked: Asked[ManySequenceIds]) -> Any:
    """Extension."""
    return {"sequence_ids": await store.get_many_span_sequence_ids(asked.rollout_attempt_ids)}


# --- resources


class Resources(RootModel[dict[str, ResourceUnion]]):
    """Name -> resource."""


@writes.post("/resources", status_code=201)
async def add_resources(store: Store, asked: Asked[Resources]) -> Any:
    return await store.add_resources(asked.root)


@writes.post("/resources/{resources_id:segment}")
async def update_resources(store: Store, resources_id: str, asked: Asked[Resources]) -> Any:
    return await store.update_resources(resources_id, asked.root)


@reads.get("/resources")
async def query_resources(store: Store, asked: Asked[ResourcesQuery]) -> Any:
    return await store.query_resources(**_arguments(asked))


class LookAtResources(BaseModel):
    timeout_s: Seconds = 0.0


@waits.get("/resources/latest")
async def latest_resources(serving: Served, asked: Asked[LookAtResources]) -> Any:
    return await _found_resources(serving, serving.store.get_latest_resources, asked.timeout_s)


@waits.get("/resources/{resources_id:segment}")
async def resources_by_id(serving: Served, resources_id: str, asked: Asked[LookAtResources]) -> Any:
    get = partial(serving.store.get_resources_by_id, resources_id)
    return await _found_resources(serving, get, asked.timeout_s)


async def _found_resources(
    serving: Serving, get: Callable[..., Awaitable[ResourcesUpdate | None]], timeout_s: float
) -> ResourcesUpdate | None:
    """Wait in slices: a store may wait in a thread, which goes on though its client has left."""
    until = time.monotonic() + timeout_s
    while True:
        wait_s = max(0.0, min(until - time.monotonic(), WAIT_S_MAX))
        found = await unless_stopping(serving.stopping, get(**_without_none(timeout_s=wait_s or None)))
        if found is not None or time.monotonic() >= until:
            return found


# --- workers


class QueryWorkers(WorkerQuery):
    status_in: Annotated[list[str] | None, _one_of(WorkerStatus)] = None


@reads.get("/workers")
@reads.post("/workers/search")
async def query_workers(store: Store, asked: Asked[QueryWorkers]) -> Any:
    return await store.query_workers(**_arguments(asked))


@reads.get("/workers/{worker_id:segment}")
async def get_worker(store: Store, worker_id: str) -> Any:
    return await store.get_worker_by_id(worker_id)


class UpdateWorker(OptionalBody):
    """Without ``heartbeat_stats`` the worker keeps those it has."""

    heartbeat_stats: dict[str, Any] | None = None


@writes.post("/workers/{worker_id:segment}")
async def update_worker(store: Store, worker_id: str, asked: Asked[UpdateWorker]) -> Any:
    return await store.update_worker(worker_id, **_given(asked))


class Heartbeat(BaseModel):
    worker: WorkerHeartbeat
    attempts: list[tuple[str, str]]


@writes.post("/workers/{worker_id:segment}/heartbeat")
async def heartbeat(store: Store, asked: Asked[Heartbeat]) -> None:
    """Extension."""
    await store.heartbeat(asked.worker, asked.attempts)


ROUTES = [*reads.routes, *waits.routes, *dispatches.routes, *writes.routes]
"""The first that fits wins. Words of a path precede ids, and what writes comes last: `search` is no rollout's id."""


def _given(asked: BaseModel) -> dict[str, Any]:
    """Return the fields that were not left out."""
    return {name: getattr(asked, name) for name in asked.model_fields_set}


def _without_none(**extensions: Any) -> dict[str, Any]:
    """Keep what the request makes use of: a store of Agent Lightning's interface alone knows none of the extensions."""
    return {name: value for name, value in extensions.items() if value is not None}
