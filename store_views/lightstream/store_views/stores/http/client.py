"""The store for processes that reach no Kafka: every call is an HTTP request to the store server."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Literal

from lightstream.runtime.services import otlp_traces_url
from lightstream.runtime.settings import Settings
from lightstream.schemas.types import (
    UNSET,
    LightningStoreCapabilities,
    LightningStoreStatistics,
    LogPositions,
    NamedResources,
    PaginatedResult,
    ResourcesUpdate,
    Span,
    Unset,
    Worker,
    WorkerStatus,
)

from ..queries import query_of
from ..validation import check_timeout, checked_attempts, checked_resources, listed_spans
from ._client_rollouts import ClientOfRollouts, given, known_words, limit_asked, page_of
from ._connection import PATIENCE_S, Connection
from ._wire import PREFIX, TRACES_PATH, WAIT_S_MAX, path_segment

__all__ = ["LightningStoreClient"]


class LightningStoreClient(ClientOfRollouts):
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
        if token is None and settings.store_token is not None:
            token = settings.store_token.get_secret_value()
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
            told = (await self._connection.get("/otlp-traces-endpoint")).value
            is_path = isinstance(told, str) and told.startswith("/")
            self._otlp_traces_url = f"{self.server_address_root}{told}" if is_path else told

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
        return self._connection.seen()

    def see(self, positions: LogPositions) -> None:
        self._connection.see(positions)

    def otlp_traces_endpoint(self) -> str:
        """URL where OTLP traces go: to the gateway that the settings name, else where the server said when this client
        was started, else to the server itself, which without the gateway's packages answers 501.

        Raises:
            NotImplementedError: the server takes none and knows no gateway.
            ServiceUnavailableError: no server is named or announced.
        """
        if self._otlp_traces_url is not None:
            return self._otlp_traces_url
        if self._has_asked:
            raise NotImplementedError("the store knows no OTLP gateway; start one first, or use add_otel_span")
        return f"{self.server_address_root}{TRACES_PATH}"

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

    async def query_spans(
        self,
        rollout_id: str,
        attempt_id: str | Literal["latest"] | None = None,
        *,
        trace_id: str | None = None,
        trace_id_contains: str | None = None,
        span_id: str | None = None,
        span_id_contains: str | None = None,
        parent_id: str | None = None,
        parent_id_contains: str | None = None,
        name: str | None = None,
        name_contains: str | None = None,
        filter_logic: Literal["and", "or"] = "and",
        limit: int = -1,
        offset: int = 0,
        sort_by: str | None = "sequence_id",
        sort_order: Literal["asc", "desc"] = "asc",
    ) -> PaginatedResult[Span]:
        body = {
            "rollout_id": rollout_id,
            "attempt_id": attempt_id,
            "trace_id": trace_id,
            "trace_id_contains": trace_id_contains,
            "span_id": span_id,
            "span_id_contains": span_id_contains,
            "parent_id": parent_id,
            "parent_id_contains": parent_id_contains,
            "name": name,
            "name_contains": name_contains,
            "filter_logic": filter_logic,
            "limit": limit_asked(limit),
            "offset": offset,
            "sort_by": sort_by,
            "sort_order": sort_order,
        }
        page = (await self._connection.post("/spans/search", body, writes=False)).value
        return page_of(page, [Span.model_validate(value) for value in page["items"]], limit)

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

    async def query_resources(
        self,
        *,
        resources_id: str | None = None,
        resources_id_contains: str | None = None,
        sort_by: str | None = None,
        sort_order: Literal["asc", "desc"] = "asc",
        limit: int = -1,
        offset: int = 0,
    ) -> PaginatedResult[ResourcesUpdate]:
        # A query string is all text: only here can it be told what is none.
        query_of(
            ResourcesUpdate,
            exact={"resources_id": resources_id},
            contains={"resources_id": resources_id_contains},
            sort_by=sort_by,
            sort_order=sort_order,
            limit=limit,
            offset=offset,
        )
        query = {
            "resources_id": resources_id,
            "resources_id_contains": resources_id_contains,
            "sort_by": sort_by,
            "sort_order": sort_order,
            "limit": limit_asked(limit),
            "offset": offset,
        }
        page = (await self._connection.get("/resources", {k: v for k, v in query.items() if v is not None})).value
        return page_of(page, [ResourcesUpdate.model_validate(value) for value in page["items"]], limit)

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

    async def query_workers(
        self,
        *,
        status_in: Sequence[WorkerStatus] | None = None,
        worker_id_contains: str | None = None,
        filter_logic: Literal["and", "or"] = "and",
        sort_by: str | None = None,
        sort_order: Literal["asc", "desc"] = "asc",
        limit: int = -1,
        offset: int = 0,
    ) -> PaginatedResult[Worker]:
        body = {
            "status_in": known_words(status_in, WorkerStatus),
            "worker_id_contains": worker_id_contains,
            "filter_logic": filter_logic,
            "sort_by": sort_by,
            "sort_order": sort_order,
            "limit": limit_asked(limit),
            "offset": offset,
        }
        page = (await self._connection.post("/workers/search", body, writes=False)).value
        return page_of(page, [Worker.model_validate(value) for value in page["items"]], limit)

    async def get_worker_by_id(self, worker_id: str) -> Worker | None:
        reply = await self._connection.get(f"/workers/{path_segment('worker_id', worker_id)}")
        return None if reply.value is None else Worker.model_validate(reply.value)

    async def update_worker(self, worker_id: str, heartbeat_stats: dict[str, Any] | Unset = UNSET) -> Worker:
        path = f"/workers/{path_segment('worker_id', worker_id)}"
        return Worker.model_validate((await self._connection.post(path, given(heartbeat_stats=heartbeat_stats))).value)
