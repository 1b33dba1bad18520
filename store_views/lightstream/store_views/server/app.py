"""The HTTP interface of the view.

``POST /v1/sql``        ``{"sql", "params"?, "at_least"?, "wait_s"?, "timeout_s"?, "rows_max"?, "query_id"?, "format"?,
                        "integers"?}`` -> JSON, NDJSON, CSV, Parquet or an Arrow stream; ``sql`` may be a named query's
                        name, ``:stuck``
``GET /v1/named-queries``  these, with their parameters
``GET /v1/queries``     the statements that run
``DELETE /v1/queries/ID``  cancels one
``GET /v1/positions``   how far the view reflects the log, where the log ended as last heard, the lag, for how many
                        seconds Kafka has been silent (``kafka_silent_s``), and the progress of a rebuild
``GET /v1/rollouts/{id}/explain``  why the rollout did or did not train
``GET /v1/reasons``      what each code of a dropped call means
``GET /v1/changes``     server-sent events: what has changed (:mod:`~.changes`)
``GET /healthz``        200 while it follows the log, else 503
``GET /``               the dashboard

Until the view has reached where the log ended when it started, answers say ``rebuilding``: they lack rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from lightstream.runtime.http.access import Access, bearer_token
from lightstream.runtime.http.door import Door
from lightstream.runtime.http.server import (
    CLIENT_GONE,
    BodyTooLargeError,
    ClientGoneError,
    read_body,
    unless_disconnected,
)
from lightstream.schemas.errors import (
    LightstreamError,
    NotFoundError,
    QueryError,
    ServiceUnavailableError,
    SettingsError,
)

from ..materialiser import Materialiser, Place
from ..queries import QUERIES
from .answering import REBUILDING_HEADER, TRUNCATED_HEADER, Answering
from .changes import Changes
from .dashboard import explanation_json, page_routes, reasons_answer
from .formats import ARROW_STREAM
from .freshness import wait_for_fetched
from .lanes import Lane, lane_named
from .query import QueryLimits
from .sql_request import REQUEST_BYTES_MAX, SqlRequest, parse_request

__all__ = ["ARROW_STREAM", "REBUILDING_HEADER", "TRUNCATED_HEADER", "create_app"]

HANG_UP_S = 1.0
"""For which the thread of a request that waits sleeps on when its client has hung up."""

Lifespan = Callable[[Starlette], AbstractAsyncContextManager[None]]


def create_app(
    materialiser: Materialiser,
    limits: QueryLimits | None = None,
    lifespan: Lifespan | None = None,
    access: Access | None = None,
    answering: Answering | None = None,
) -> Starlette:
    """The application, over a materialiser that has been started.

    Args:
        access: which token a request must carry, and under which names the view is asked; by default no token.
        answering: runs the statements; by default one without a watchdog.

    Returns:
        The application; ``app.state.changes.close`` ends the event streams, which otherwise last as long as the view.
    """
    answering = answering or Answering(lambda: materialiser.database.cursor())
    access = access or Access()
    endpoints = _Endpoints(materialiser, limits or QueryLimits(), access, answering)
    routes = [
        # Mounted, so that another method is told 405, and is not an address of the page's.
        Mount(
            "/v1",
            routes=[
                Route("/sql", endpoints.sql, methods=["POST"]),
                Route("/named-queries", endpoints.named_queries),
                Route("/queries", endpoints.queries),
                Route("/queries/{query_id}", endpoints.cancel, methods=["DELETE"]),
                Route("/positions", endpoints.positions),
                Route("/rollouts/{rollout_id:path}/explain", endpoints.explain),
                Route("/reasons", endpoints.reasons),
                Route("/changes", endpoints.changes),
            ],
        ),
        Route("/healthz", endpoints.healthz),
        *page_routes(),
    ]
    app = Starlette(routes=routes, lifespan=lifespan, middleware=[Middleware(Door, access=access, refuse=_refused)])
    app.state.changes = endpoints.stream
    return app


class _Endpoints:
    def __init__(self, materialiser: Materialiser, limits: QueryLimits, access: Access, answering: Answering) -> None:
        self._materialiser = materialiser
        self._access = access
        self._limits = limits
        self._answering = answering
        self._asks_kafka = CapacityLimiter(1)  # what one hears is good for those who come meanwhile
        self.stream = Changes(materialiser)

    def _refusal(self, request: Request) -> Response | None:
        """Answer a request without its token."""
        if not self._access.allows(bearer_token(request.headers)):
            error = SettingsError("the view asks for its token.", next_step="Set LIGHTSTREAM_VIEW_TOKEN.")
            return _error(401, error)
        return None

    async def sql(self, request: Request) -> Response:
        if refusal := self._refusal(request):
            return refusal
        try:
            asked = parse_request(await read_body(request, REQUEST_BYTES_MAX), self._limits)
            await self._wait(request, asked, self._answering.lanes[lane_named(request.headers)])
            rebuilding = self._materialiser.rebuilding is not None
            return await self._answering.answer(request, asked, rebuilding=rebuilding)
        except ClientGoneError:
            return Response(status_code=CLIENT_GONE)
        except ServiceUnavailableError as error:
            return _error(503, error)
        except BodyTooLargeError as error:
            return _error(413, error)
        except LightstreamError as error:
            return _error(400, error)

    async def named_queries(self, request: Request) -> Response:
        return self._refusal(request) or JSONResponse({"queries": [asdict(query) for query in QUERIES.values()]})

    async def queries(self, request: Request) -> Response:
        return self._refusal(request) or self._answering.list()

    async def cancel(self, request: Request) -> Response:
        if refusal := self._refusal(request):
            return refusal
        try:
            return self._answering.cancel(request.path_params["query_id"])
        except NotFoundError as error:
            return _error(404, error)

    async def _wait(self, request: Request, asked: SqlRequest, lane: Lane) -> None:
        if isinstance(asked.wanted, dict):
            wanted = asked.wanted
        else:
            wanted = await self._answering.catch_up(lane, self._materialiser.end_offsets_now)
        if not wanted:
            await wait_for_fetched(self._materialiser, self._answering, lane)
            return
        if not self._materialiser.positions.missing(wanted):
            return
        missing = await unless_disconnected(request, self._missing(wanted, asked.wait_s, lane))
        if missing:
            places = ", ".join(f"{t}/{p} is at {at}, not {to}" for (t, p), (to, at) in sorted(missing.items()))
            failure = self._materialiser.failure
            raise ServiceUnavailableError(
                f"the view has not caught up within {asked.wait_s:g} s: {places}."
                if failure is None
                else f"the view has stopped: {failure}",
                next_step="Ask again, or allow more time with wait_s." if failure is None else "",
            )

    async def _missing(self, wanted: dict[Place, int], wait_s: float, lane: Lane) -> dict[Place, tuple[int, int]]:
        """Wait for what is wanted; what is still missing after that. May be cancelled."""
        positions, give_up_s = self._materialiser.positions, time.monotonic() + wait_s

        def wait() -> dict[Place, tuple[int, int]]:
            return positions.wait_for(wanted, min(HANG_UP_S, max(0.0, give_up_s - time.monotonic())))

        return await self._answering.catch_up(
            lane,
            wait,
            until=lambda missing: not missing or positions.closed is not None or time.monotonic() >= give_up_s,
        )

    async def explain(self, request: Request) -> Response:
        if refusal := self._refusal(request):
            return refusal
        try:
            lane_name = lane_named(request.headers, "dashboard")
            await wait_for_fetched(self._materialiser, self._answering, self._answering.lanes[lane_name])
            rollout_id: str = request.path_params["rollout_id"]
            rebuilding = self._materialiser.rebuilding is not None
            return await self._answering.read(
                request,
                f"lightstream explain {rollout_id}",
                lambda cursor: explanation_json(cursor, rollout_id, rebuilding=rebuilding),
                self._limits.timeout_s,
                lane_name=lane_name,
                rebuilding=rebuilding,
            )
        except NotFoundError as error:
            return _error(404, error)
        except ServiceUnavailableError as error:
            return _error(503, error)
        except LightstreamError as error:
            return _error(400, error)

    async def reasons(self, request: Request) -> Response:
        return self._refusal(request) or reasons_answer()

    async def positions(self, request: Request) -> Response:
        if refusal := self._refusal(request):
            return refusal
        silent_s = await run_sync(self._materialiser.kafka.silent_s, limiter=self._asks_kafka)
        reached = self._materialiser.positions.snapshot()
        ends = self._materialiser.end_offsets()
        lag = {place: max(0, end - reached.get(place, 0)) for place, end in ends.items()}
        return JSONResponse(
            {
                "positions": _nested(reached),
                "end": _nested(ends),
                "lag": _nested(lag),
                "lag_records": sum(lag.values()),
                "kafka_silent_s": silent_s,
                "rebuilding": None if (progress := self._materialiser.rebuilding) is None else asdict(progress),
            }
        )

    async def changes(self, request: Request) -> Response:
        return self._refusal(request) or self.stream.response()

    async def healthz(self, request: Request) -> Response:
        failure = self._materialiser.failure
        if failure is not None:
            return JSONResponse({"status": "failed", "reason": str(failure)}, status_code=503)
        return JSONResponse({"status": "ok"})


def _error(status: int, error: LightstreamError) -> Response:
    body = {"error": {"type": type(error).__name__, "message": error.message, "next_step": error.next_step}}
    return JSONResponse(body, status_code=status)


def _refused(status: int, message: str) -> Response:
    return _error(status, QueryError(f"{message}."))


def _nested(values: dict[Place, int]) -> dict[str, dict[str, int]]:
    nested: dict[str, dict[str, int]] = {}
    for (topic, partition), value in sorted(values.items()):
        nested.setdefault(topic, {})[str(partition)] = value
    return nested
