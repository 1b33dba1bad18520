"""The routes of Agent Lightning 0.3, and ours beyond them; for each the form of its body and the store's call.

What does not fit a form is answered with 422, as there; what fits and cannot be done, by the store's error. Fields that
are unknown are ignored. In a form, and in a query string, the fields after Agent Lightning's own are ours.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any, TypeVar, cast

from fastapi import APIRouter
from pydantic import AfterValidator, BaseModel, Field, RootModel, create_model
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
)

from ..queries import AttemptQuery, Query, ResourcesQuery, RolloutQuery, SpanQuery, WorkerQuery
from ._answers import Answer
from ._dispatch import dequeued, requeue_unused, unless_stopping
from ._route import (
    Dispatched,
    DispatchRoute,
    OptionalBody,
    Parsed,
    Served,
    Serving,
    Store,
    StoreRoute,
    WaitRoute,
    WriteRoute,
)
from ._wire import ASKS_AGAIN, PREFIX, REQUEUE_PATH, TRACES_PATH, UNFINISHED, WAIT_S_MAX

CUT_SLACK_S = 0.1
"""A wait that returns this much before the end of its slice may have been ended by it: clocks differ."""

reads = APIRouter(prefix=PREFIX, route_class=StoreRoute)
waits = APIRouter(prefix=PREFIX, route_class=WaitRoute)
writes = APIRouter(prefix=PREFIX, route_class=WriteRoute)
dispatches = APIRouter(prefix=PREFIX, route_class=DispatchRoute)

Made = TypeVar("Made", bound=type[Query])

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def _arguments(query: Query) -> dict[str, Any]:
    """Return the query as arguments of the store's method.

    Raises:
        StoreError: the page has no room.
    """
    if query.limit == 0:
        raise StoreError("limit is 0; it must be a number of items from 1 up, or -1 for all")
    return dict(query)


def _as_form(query: Made) -> Made:
    """Make a form of a query: it takes old names too, and of statuses only those that there are."""
    fields: dict[str, Any] = {
        name: (Annotated[list[str] | None, AfterValidator(partial(_checked_texts, argument.known))], None)
        for name, argument in query.arguments.items()
        if argument.is_list and (argument.known or argument.former_name_of)
    }
    form: Any = create_model(
        query.__name__, __base__=query, __doc__=query.__doc__, __module__=query.__module__, **fields
    )
    return cast("Made", form)


def _checked_texts(known: tuple[str, ...], values: list[str] | None) -> list[str] | None:
    for value in values or ():
        if known and value not in known:
            raise ValueError(f"{value!r} is none of {', '.join(known)}")
    return values


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
async def enqueue_rollouts(store: Store, form: Parsed[EnqueueRollouts]) -> Any:
    return await store.enqueue_many_rollouts(form.rollouts)


class DequeueRollouts(OptionalBody):
    limit: int = 1
    worker_id: str | None = None
    timeout_s: Seconds = 0.0
    run_id: str = ANY_RUN


@dispatches.post("/queues/rollouts/dequeue")
async def dequeue_rollouts(serving: Served, form: Parsed[DequeueRollouts]) -> Dispatched:
    rollouts = await dequeue(serving, form.limit, form.worker_id, form.timeout_s, form.run_id)
    return Dispatched(serving.store, rollouts, rollouts)


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
async def requeue_rollouts(serving: Served, form: Parsed[Requeue]) -> None:
    """Extension. The client did not wait for the answer to that request of its, or lost it."""
    answer = await serving.answers.forget(form.key, though_awaited=True)
    await requeue_unused(serving.store, answer.dispatched if answer else ())


class StartRollout(EnqueueRolloutRequest):
    worker_id: str | None = None


@writes.post("/rollouts", status_code=201)
async def start_rollout(store: Store, form: Parsed[StartRollout]) -> Any:
    extensions = {name: getattr(form, name) for name in ("rollout_id", "run_id", "group_id", "group_size", "assembly")}
    return await store.start_rollout(
        form.input,
        form.mode,
        form.resources_id,
        form.config,
        form.metadata,
        form.worker_id,
        **_without_none(**extensions),
    )


@_as_form
class QueryRollouts(RolloutQuery):
    """A query of rollouts."""


@reads.get("/rollouts")
@reads.post("/rollouts/search")
async def query_rollouts(store: Store, form: Parsed[QueryRollouts]) -> Any:
    return await store.query_rollouts(**_arguments(form))


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
async def update_rollout(store: Store, rollout_id: str, form: Parsed[UpdateRollout]) -> Any:
    return await store.update_rollout(rollout_id, **_given(form))


class CancelRollout(OptionalBody):
    reason: str = ""


@writes.post("/rollouts/{rollout_id:segment}/cancel")
async def cancel_rollout(store: Store, rollout_id: str, form: Parsed[CancelRollout]) -> Any:
    """Extension."""
    return await store.cancel_rollout(rollout_id, form.reason)


class WaitForRollouts(BaseModel):
    rollout_ids: list[str]
    timeout: Annotated[float, Field(allow_inf_nan=False)] | None = None
    count: int | None = None
    share: float | None = None


@waits.post("/waits/rollouts")
async def wait_for_rollouts(request: Request, serving: Served, form: Parsed[WaitForRollouts]) -> Any:
    wait_s = None if form.timeout is None else max(0.0, form.timeout)
    slice_s = min(math.inf if wait_s is None else wait_s, WAIT_S_MAX) if ASKS_AGAIN in request.headers else wait_s
    began = time.monotonic()
    waiting = serving.store.wait_for_rollouts(
        rollout_ids=form.rollout_ids, timeout=slice_s, **_without_none(count=form.count, share=form.share)
    )
    done = await unless_stopping(serving.stopping, waiting)
    is_cut = slice_s is not None and slice_s != wait_s and time.monotonic() - began >= slice_s - CUT_SLACK_S
    return Answer(done, headers={UNFINISHED: "1"}) if is_cut else done


# --- attempts


class StartAttempt(OptionalBody):
    worker_id: str | None = None


@writes.post("/rollouts/{rollout_id:segment}/attempts", status_code=201)
async def start_attempt(store: Store, rollout_id: str, form: Parsed[StartAttempt]) -> Any:
    return await store.start_attempt(rollout_id, form.worker_id)


@reads.get("/rollouts/{rollout_id:segment}/attempts")
@reads.post("/rollouts/{rollout_id:segment}/attempts/search")
async def query_attempts(store: Store, rollout_id: str, form: Parsed[AttemptQuery]) -> Any:
    return await store.query_attempts(rollout_id, **_arguments(form))


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
async def update_attempt(store: Store, rollout_id: str, attempt_id: str, form: Parsed[UpdateAttempt]) -> Any:
    given = _given(form)
    reason = {name: given.pop(name, None) for name in ("error_type", "error_message")}
    return await store.update_attempt(rollout_id, attempt_id, **given, **_without_none(**reason))


# --- spans


@writes.post("/spans", status_code=201)
async def add_span(store: Store, form: Parsed[Span]) -> Any:
    return await store.add_span(form)


class AddManySpans(BaseModel):
    spans: list[Span]


@writes.post("/spans/batch", status_code=201)
async def add_many_spans(store: Store, form: Parsed[AddManySpans]) -> Any:
    """Extension."""
    return await store.add_many_spans(form.spans)


@_as_form
class QuerySpans(SpanQuery):
    """A query of spans."""

    rollout_id: str
    attempt_id: str | None = None


@reads.get("/spans")
@reads.post("/spans/search")
async def query_spans(store: Store, form: Parsed[QuerySpans]) -> Any:
    arguments = _arguments(form)
    return await store.query_spans(arguments.pop("rollout_id"), arguments.pop("attempt_id"), **arguments)


class NextSequenceId(BaseModel):
    rollout_id: str
    attempt_id: str


@writes.post("/spans/next")
async def next_sequence_id(store: Store, form: Parsed[NextSequenceId]) -> Any:
    return {"sequence_id": await store.get_next_span_sequence_id(form.rollout_id, form.attempt_id)}


class ManySequenceIds(BaseModel):
    rollout_attempt_ids: list[tuple[str, str]]


@writes.post("/spans/next/batch")
async def many_sequence_ids(store: Store, form: Parsed[ManySequenceIds]) -> Any:
    """Extension."""
    return {"sequence_ids": await store.get_many_span_sequence_ids(form.rollout_attempt_ids)}


# --- resources


class Resources(RootModel[dict[str, ResourceUnion]]):
    """Name -> resource."""


@writes.post("/resources", status_code=201)
async def add_resources(store: Store, form: Parsed[Resources]) -> Any:
    return await store.add_resources(form.root)


@writes.post("/resources/{resources_id:segment}")
async def update_resources(store: Store, resources_id: str, form: Parsed[Resources]) -> Any:
    return await store.update_resources(resources_id, form.root)


@reads.get("/resources")
async def query_resources(store: Store, form: Parsed[ResourcesQuery]) -> Any:
    return await store.query_resources(**_arguments(form))


class LookAtResources(BaseModel):
    timeout_s: Seconds = 0.0


@waits.get("/resources/latest")
async def latest_resources(serving: Served, form: Parsed[LookAtResources]) -> Any:
    return await _found_resources(serving, serving.store.get_latest_resources, form.timeout_s)


@waits.get("/resources/{resources_id:segment}")
async def resources_by_id(serving: Served, resources_id: str, form: Parsed[LookAtResources]) -> Any:
    get = partial(serving.store.get_resources_by_id, resources_id)
    return await _found_resources(serving, get, form.timeout_s)


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


@_as_form
class QueryWorkers(WorkerQuery):
    """A query of workers."""


@reads.get("/workers")
@reads.post("/workers/search")
async def query_workers(store: Store, form: Parsed[QueryWorkers]) -> Any:
    return await store.query_workers(**_arguments(form))


@reads.get("/workers/{worker_id:segment}")
async def get_worker(store: Store, worker_id: str) -> Any:
    return await store.get_worker_by_id(worker_id)


class UpdateWorker(OptionalBody):
    """Without ``heartbeat_stats`` the worker keeps its own."""

    heartbeat_stats: dict[str, Any] | None = None


@writes.post("/workers/{worker_id:segment}")
async def update_worker(store: Store, worker_id: str, form: Parsed[UpdateWorker]) -> Any:
    return await store.update_worker(worker_id, **_given(form))


class Heartbeat(BaseModel):
    worker: WorkerHeartbeat
    attempts: list[tuple[str, str]]


@writes.post("/workers/{worker_id:segment}/heartbeat")
async def heartbeat(store: Store, form: Parsed[Heartbeat]) -> None:
    """Extension."""
    await store.heartbeat(form.worker, form.attempts)


ROUTES = [*reads.routes, *waits.routes, *dispatches.routes, *writes.routes]
"""The first that fits wins. Words of a path precede ids, and what writes comes last: `search` is no rollout's id."""


def _given(form: BaseModel) -> dict[str, Any]:
    """Return the fields that were not left out."""
    return {name: getattr(form, name) for name in form.model_fields_set}


def _without_none(**extensions: Any) -> dict[str, Any]:
    """Keep what the request makes use of: a store of Agent Lightning's interface alone knows none of the extensions."""
    return {name: value for name, value in extensions.items() if value is not None}
