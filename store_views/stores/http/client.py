"""The store for processes that reach no Kafka: every call is an HTTP request to the store server."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from lightstream.runtime.http.own_tokens import token_of
from lightstream.runtime.services import otlp_traces_url
from lightstream.runtime.settings import Settings
from lightstream.schemas.records import ANY_RUN, WorkerHeartbeat
from lightstream.schemas.types import (
    UNSET,
    Assembly,
    Attempt,
    AttemptedRollout,
    AttemptStatus,
    EnqueueRolloutRequest,
    LightningStoreCapabilities,
    LightningStoreStatistics,
    LogPositions,
    NamedResources,
    PaginatedResult,
    ResourcesUpdate,
    Rollout,
    RolloutConfig,
    RolloutMode,
    RolloutStatus,
    Span,
    TaskInput,
    Unset,
    Worker,
)

from ..queries import AttemptQuery, Query, ResourcesQuery, RolloutQuery, SpanQuery, WorkerQuery, page_of
from ..querying import QueriedStore
from ..validation import (
    check_dequeue,
    check_report,
    check_timeout,
    checked_attempts,
    checked_ids,
    checked_requests,
    checked_resources,
    enough,
    listed_spans,
)
from ._connection import PATIENCE_S, Connection
from ._wire import PREFIX, TRACES_PATH, UNFINISHED, WAIT_S_MAX, path_segment

T = TypeVar("T")


class LightningStoreClient(QueriedStore):
    """A store that lives in a server. Results and errors are those of the store there.

    Any number of threads and event loops may use one client; it may be pickled and used after a fork. While the
    server is away, calls wait for it, for ``patience_s`` seconds. A write is done once, however often it had to be
    sent and whichever server it reached: its ids follow from the request's key. Over a restart of the server, an
    attempt dispatched just then may be dispatched again only when its lease is over, of numbers taken some may remain
    unused, and an ``update_resources`` may count its version twice.

    Args:
        server_address: URL of the server, without a path; by default the one that the settings name (``store_url``),
            or that is announced on this machine. The property of this name adds the path.
        settings: by default those of the environment.
        token: by default that of the settings.
        patience_s: how long a server may be away before a call gives up.
    """

    def __init__(
        self,
        server_address: str | None = None,
        *,
        settings: Settings | None = None,
        token: str | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        settings = settings or Settings.load()
        token = token_of(settings, "store_token") if token is None else token
        self._connection = Connection(server_address, settings, token, patience_s)
        self._otlp_traces_url = otlp_traces_url(settings) if settings.gateway_url else None
        self._has_asked = False

    async def start(self) -> None:
        """See that the server is there and takes our token.

        Raises:
            ServiceUnavailableError: nobody answers.
            SettingsError: the token is missing or wrong.
        """
        await self._connection.get("/capabilities")
        if self._otlp_traces_url is None:
            self._has_asked = True
            endpoint = (await self._connection.get("/otlp-traces-endpoint")).value
            is_path = isinstance(endpoint, str) and endpoint.startswith("/")
            self._otlp_traces_url = f"{self.server_address_root}{endpoint}" if is_path else endpoint

    async def close(self) -> None:
        """Close connections. Calls under way end with a :class:`ServiceUnavailableError`, as the interface says."""
        await self._connection.close()

    @property
    def server_address_root(self) -> str:
        """URL of the server, without a path.

        Raises:
            ServiceUnavailableError: no server is named or announced.
        """
        return self._connection.address

    @property
    def server_address(self) -> str:
        """URL of the store's routes: the server's and ``/v1/agl``, as Agent Lightning's client has it.

        Raises:
            ServiceUnavailableError: no server is named or announced.
        """
        return f"{self.server_address_root}{PREFIX}"

    @property
    def capabilities(self) -> LightningStoreCapabilities:
        takes = self._otlp_traces_url is not None or not self._has_asked
        return LightningStoreCapabilities(thread_safe=True, async_safe=True, zero_copy=True, otlp_traces=takes)

    async def statistics(self) -> LightningStoreStatistics:
        value: LightningStoreStatistics = (await self._connection.get("/statistics")).value
        return value

    def positions(self) -> LogPositions:
        return self._connection.positions()

    def see(self, positions: LogPositions) -> None:
        self._connection.see(positions)

    def otlp_traces_endpoint(self) -> str:
        """URL of the OTLP traces: the settings' gateway, else the server's at this client's start, else the server
        itself. Without the gateway's packages, the server answers 501.

        Raises:
            NotImplementedError: the server takes none and knows no gateway.
            ServiceUnavailableError: no server is named or announced.
        """
        if self._otlp_traces_url is not None:
            return self._otlp_traces_url
        if self._has_asked:
            raise NotImplementedError("the store knows no OTLP gateway; start one first, or use add_otel_span")
        return f"{self.server_address_root}{TRACES_PATH}"

    # --- rollouts and attempts

    async def start_rollout(
        self,
        input: TaskInput,  # noqa: A002  # the interface's name
        mode: RolloutMode | None = None,
        resources_id: str | None = None,
        config: RolloutConfig | None = None,
        metadata: dict[str, Any] | None = None,
        worker_id: str | None = None,
        *,
        rollout_id: str | None = None,
        run_id: str | None = None,
        group_id: str | None = None,
        group_size: int | None = None,
        assembly: Assembly | None = None,
    ) -> AttemptedRollout:
        request = EnqueueRolloutRequest(
            input=input,
            mode=mode,
            resources_id=resources_id,
            config=config,
            metadata=metadata,
            rollout_id=rollout_id,
            run_id=run_id,
            group_id=group_id,
            group_size=group_size,
            assembly=assembly,
        )
        reply = await self._connection.post("/rollouts", {**dict(request), "worker_id": worker_id})
        return AttemptedRollout.model_validate(reply.value)

    async def enqueue_many_rollouts(self, rollouts: Sequence[EnqueueRolloutRequest]) -> list[Rollout]:
        requests = checked_requests(rollouts)
        if not requests:
            return []
        reply = await self._connection.post("/queues/rollouts/enqueue", {"rollouts": requests})
        return [_rollout_of(value) for value in reply.value]

    async def dequeue_many_rollouts(
        self, *, limit: int = 1, worker_id: str | None = None, timeout_s: float = 0.0, run_id: str = ANY_RUN
    ) -> list[AttemptedRollout]:
        check_dequeue(limit, timeout_s, worker_id, run_id)
        until = time.monotonic() + timeout_s
        while True:
            remaining_s = until - time.monotonic()
            body: dict[str, Any] = {
                "limit": limit,
                "worker_id": worker_id,
                "timeout_s": max(0.0, min(remaining_s, WAIT_S_MAX)),
            }
            if run_id != ANY_RUN:
                body["run_id"] = run_id
            reply = await self._connection.post("/queues/rollouts/dequeue", body, dispatches=True)
            if reply.value or limit <= 0 or time.monotonic() >= until:
                return [AttemptedRollout.model_validate(value) for value in reply.value]

    async def start_attempt(self, rollout_id: str, worker_id: str | None = None) -> AttemptedRollout:
        path = f"/rollouts/{path_segment('rollout_id', rollout_id)}/attempts"
        return AttemptedRollout.model_validate((await self._connection.post(path, {"worker_id": worker_id})).value)

    async def get_rollout_by_id(self, rollout_id: str) -> Rollout | None:
        reply = await self._connection.get(f"/rollouts/{path_segment('rollout_id', rollout_id)}")
        return None if reply.value is None else _rollout_of(reply.value)

    async def wait_for_rollouts(
        self,
        *,
        rollout_ids: Sequence[str],
        timeout: float | None = None,  # noqa: ASYNC109  # the interface's name
        count: int | None = None,
        share: float | None = None,
    ) -> list[Rollout]:
        ids = checked_ids("rollout_ids", rollout_ids)
        check_timeout("timeout", timeout, may_be_none=True)
        enough(len(set(ids)), count, share)
        until = math.inf if timeout is None else time.monotonic() + timeout
        body: dict[str, Any] = {"rollout_ids": ids, "count": count, "share": share}
        while True:
            remaining_s = until - time.monotonic()
            body["timeout"] = None if remaining_s == math.inf else max(0.0, remaining_s)
            reply = await self._connection.post("/waits/rollouts", body, writes=False)
            if UNFINISHED not in reply.headers or time.monotonic() >= until:
                return [_rollout_of(value) for value in reply.value]

    async def update_rollout(
        self,
        rollout_id: str,
        input: TaskInput | Unset = UNSET,  # noqa: A002  # the interface's name
        mode: RolloutMode | Unset | None = UNSET,
        resources_id: str | Unset | None = UNSET,
        status: RolloutStatus | Unset = UNSET,
        config: RolloutConfig | Unset = UNSET,
        metadata: dict[str, Any] | Unset | None = UNSET,
        *,
        if_attempt: str | None = None,
    ) -> Rollout:
        body = _given(
            input=input, mode=mode, resources_id=resources_id, status=status, config=config, metadata=metadata,
            if_attempt=UNSET if if_attempt is None else if_attempt,
        )  # fmt: skip
        path = f"/rollouts/{path_segment('rollout_id', rollout_id)}"
        return _rollout_of((await self._connection.post(path, body)).value)

    async def cancel_rollout(self, rollout_id: str, reason: str = "") -> Rollout:
        path = f"/rollouts/{path_segment('rollout_id', rollout_id)}/cancel"
        return _rollout_of((await self._connection.post(path, {"reason": reason})).value)

    async def get_latest_attempt(self, rollout_id: str) -> Attempt | None:
        reply = await self._connection.get(f"/rollouts/{path_segment('rollout_id', rollout_id)}/attempts/latest")
        return None if reply.value is None else Attempt.model_validate(reply.value)

    async def update_attempt(
        self,
        rollout_id: str,
        attempt_id: str | Literal["latest"],
        status: AttemptStatus | Unset = UNSET,
        worker_id: str | Unset = UNSET,
        last_heartbeat_time: float | Unset = UNSET,
        metadata: dict[str, Any] | Unset | None = UNSET,
        *,
        error_type: str | None = None,
        error_message: str | None = None,
    ) -> Attempt:
        rollout, attempt = path_segment("rollout_id", rollout_id), path_segment("attempt_id", attempt_id)
        body = _given(status=status, worker_id=worker_id, last_heartbeat_time=last_heartbeat_time, metadata=metadata)
        body |= {"error_type": error_type, "error_message": error_message}
        return Attempt.model_validate(
            (await self._connection.post(f"/rollouts/{rollout}/attempts/{attempt}", body)).value
        )

    async def heartbeat(self, worker: WorkerHeartbeat, attempts: Sequence[tuple[str, str]]) -> None:
        check_report(worker)
        named = checked_attempts("attempts", attempts)
        path = f"/workers/{path_segment('worker_id', worker.worker_id)}/heartbeat"
        await self._connection.post(path, {"worker": worker, "attempts": named})

    # --- spans

    async def add_span(self, span: Span) -> Span | None:
        listed_spans([span])
        value = (await self._connection.post("/spans", dict(span))).value
        return None if value is None else Span.model_validate(value)

    async def add_many_spans(self, spans: Sequence[Span]) -> list[Span]:
        listed = listed_spans(spans)
        if not listed:
            return []
        reply = await self._connection.post("/spans/batch", {"spans": listed})
        return [Span.model_validate(value) for value in reply.value]

    async def get_next_span_sequence_id(self, rollout_id: str, attempt_id: str) -> int:
        body = {"rollout_id": rollout_id, "attempt_id": attempt_id}
        return int((await self._connection.post("/spans/next", body)).value["sequence_id"])

    async def get_many_span_sequence_ids(self, rollout_attempt_ids: Sequence[tuple[str, str]]) -> list[int]:
        body = {"rollout_attempt_ids": checked_attempts("rollout_attempt_ids", rollout_attempt_ids)}
        return [int(n) for n in (await self._connection.post("/spans/next/batch", body)).value["sequence_ids"]]

    # --- resources

    async def add_resources(self, resources: NamedResources) -> ResourcesUpdate:
        return ResourcesUpdate.model_validate(
            (await self._connection.post("/resources", checked_resources(resources))).value
        )

    async def update_resources(self, resources_id: str, resources: NamedResources) -> ResourcesUpdate:
        path = f"/resources/{path_segment('resources_id', resources_id)}"
        return ResourcesUpdate.model_validate((await self._connection.post(path, checked_resources(resources))).value)

    async def get_resources_by_id(self, resources_id: str, *, timeout_s: float = 0.0) -> ResourcesUpdate | None:
        return await self._found_resources(path_segment("resources_id", resources_id), timeout_s)

    async def get_latest_resources(self, *, timeout_s: float = 0.0) -> ResourcesUpdate | None:
        return await self._found_resources("latest", timeout_s)

    async def _found_resources(self, segment: str, timeout_s: float) -> ResourcesUpdate | None:
        check_timeout("timeout_s", timeout_s)
        until = time.monotonic() + timeout_s
        while True:
            wait_s = max(0.0, min(until - time.monotonic(), WAIT_S_MAX))
            value = (await self._connection.get(f"/resources/{segment}", {"timeout_s": wait_s})).value
            if value is not None:
                return ResourcesUpdate.model_validate(value)
            if time.monotonic() >= until:
                return None

    # --- workers

    async def get_worker_by_id(self, worker_id: str) -> Worker | None:
        reply = await self._connection.get(f"/workers/{path_segment('worker_id', worker_id)}")
        return None if reply.value is None else Worker.model_validate(reply.value)

    async def update_worker(self, worker_id: str, heartbeat_stats: dict[str, Any] | Unset | None = UNSET) -> Worker:
        path = f"/workers/{path_segment('worker_id', worker_id)}"
        return Worker.model_validate((await self._connection.post(path, _given(heartbeat_stats=heartbeat_stats))).value)

    # --- queries

    async def find_rollouts(self, query: RolloutQuery) -> PaginatedResult[Rollout]:
        return await self._found("/rollouts/search", _body(query), query, _rollout_of)

    async def find_attempts(self, rollout_id: str, query: AttemptQuery) -> PaginatedResult[Attempt]:
        path = f"/rollouts/{path_segment('rollout_id', rollout_id)}/attempts/search"
        return await self._found(path, _body(query), query, Attempt.model_validate)

    async def find_spans(self, rollout_id: str, attempt_id: str | None, query: SpanQuery) -> PaginatedResult[Span]:
        body = {"rollout_id": rollout_id, "attempt_id": attempt_id} | _body(query)
        return await self._found("/spans/search", body, query, Span.model_validate)

    async def find_resources(self, query: ResourcesQuery) -> PaginatedResult[ResourcesUpdate]:
        arguments = {name: value for name, value in _body(query).items() if value is not None}
        page = (await self._connection.get("/resources", arguments)).value
        return _page(page, query, ResourcesUpdate.model_validate)

    async def find_workers(self, query: WorkerQuery) -> PaginatedResult[Worker]:
        return await self._found("/workers/search", _body(query), query, Worker.model_validate)

    async def _found(
        self, path: str, body: dict[str, Any], query: Query, item_of: Callable[[Any], T]
    ) -> PaginatedResult[T]:
        return _page((await self._connection.post(path, body, writes=False)).value, query, item_of)


def _given(**arguments: Any) -> dict[str, Any]:
    """Return the arguments that were given."""
    return {name: value for name, value in arguments.items() if value is not UNSET}


def _rollout_of(value: Any) -> Rollout:
    """Make a rollout, with its attempt where the server sent one."""
    return (AttemptedRollout if "attempt" in value else Rollout).model_validate(value)


def _body(query: Query) -> dict[str, Any]:
    """Make a request of a query.

    A server refuses pages of no items, so that a page of one is asked for, and statuses that no item can have, which
    in a store find nothing.
    """
    body: dict[str, Any] = dict(query) | {"limit": query.limit or 1}
    for name, argument in query.arguments.items():
        if argument.known and body.get(name) is not None:
            body[name] = [value for value in body[name] if value in argument.known]
    return body


def _page(page: dict[str, Any], query: Query, item_of: Callable[[Any], T]) -> PaginatedResult[T]:
    """Parse the server's page, as long as the query asked for."""
    items = [item_of(value) for value in page["items"]] if query.limit else []
    return page_of(items, limit=query.limit, offset=page["offset"], total=page["total"])
