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
``POST /v1/feedback``   scores of rollouts, calls and pairs (:mod:`~.feedback`)
``GET /v1/releases``    every release as it is now; ``POST /v1/releases/NAME`` changes one (:mod:`~.releases`)
``GET /v1/reasons``      what each code of a dropped call means
``GET /v1/changes``     server-sent events: what has changed (:mod:`~.changes`)
``GET /healthz``        200 while it follows the log, else 503
``GET /``               the dashboard

Until the view has reached where the log ended when it started, answers say ``rebuilding``: they lack rows.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from lightstream.runtime.http.access import Access, bearer_token
from lightstream.runtime.http.door import Door
from lightstream.runtime.http.errors import view_error
from lightstream.runtime.http.server import (
    CLIENT_GONE,
    BodyTooLargeError,
    ClientGoneError,
    read_body,
)
from lightstream.runtime.http.tokens import CONTROL, FEEDBACK, READ, SQL
from lightstream.schemas.errors import (
    LightstreamError,
    NotFoundError,
    PublishError,
    QueryError,
    ServiceUnavailableError,
    SettingsError,
)

from ..materialiser import Place, ViewSource
from ..queries import QUERIES
from .admission import REQUEST_BYTES_MAX, lane_named, parse_request, wait_for_fetched, wait_for_view
from .answer import ARROW_STREAM
from .answering import REBUILDING_HEADER, TRUNCATED_HEADER, Answering
from .changes import Changes
from .dashboard import explanation_json, page_routes, reasons_answer
from .feedback import FeedbackWriter
from .people import PeoplesView, PeoplesViewAwayError
from .releases import ReleaseEndpoints
from .statement import QueryLimits

__all__ = ["ARROW_STREAM", "REBUILDING_HEADER", "TRUNCATED_HEADER", "create_app"]

COMPRESSED_BYTES_MIN = 1024
COMPRESSION_LEVEL = 5
"""A tenth larger than by the best one, in a third of its time."""

Lifespan = Callable[[Starlette], AbstractAsyncContextManager[None]]


def create_app(
    materialiser: ViewSource,
    limits: QueryLimits | None = None,
    lifespan: Lifespan | None = None,
    access: Access | None = None,
    answering: Answering | None = None,
    people: PeoplesView | None = None,
    feedback: FeedbackWriter | None = None,
    releases: ReleaseEndpoints | None = None,
) -> Starlette:
    """The application, over a materialiser that has been started.

    Args:
        access: which token a request must carry, and under which names the view is asked; by default no token.
        answering: runs the statements; by default one without a watchdog.
        people: answers people's statements; by default this view does.
        feedback: takes scores; without it they are refused.
        releases: reads and changes releases; without it that is refused.

    Returns:
        The application; ``app.state.changes.close`` ends the event streams, which otherwise last as long as the view.
    """
    answering = answering or Answering(lambda: materialiser.database.cursor())
    access = access or Access()
    endpoints = _Endpoints(materialiser, limits or QueryLimits(), access, answering, people, feedback, releases)
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
                Route("/feedback", endpoints.feedback, methods=["POST"]),
                Route("/releases", endpoints.releases),
                Route("/releases/{name}", endpoints.change_release, methods=["POST"]),
                Route("/reasons", endpoints.reasons),
                Route("/changes", endpoints.changes),
            ],
        ),
        Route("/healthz", endpoints.healthz),
        *page_routes(),
    ]
    # Event streams are not compressed; our own clients, on the same network, ask for none of it.
    compressed = Middleware(GZipMiddleware, minimum_size=COMPRESSED_BYTES_MIN, compresslevel=COMPRESSION_LEVEL)
    middleware = [Middleware(Door, access=access, refuse=_refused), compressed]
    app = Starlette(routes=routes, lifespan=lifespan, middleware=middleware)
    app.state.changes = endpoints.stream
    return app


class _Endpoints:
    def __init__(
        self,
        materialiser: ViewSource,
        limits: QueryLimits,
        access: Access,
        answering: Answering,
        people: PeoplesView | None,
        feedback: FeedbackWriter | None,
        releases: ReleaseEndpoints | None,
    ) -> None:
        self._materialiser = materialiser
        self._access = access
        self._limits = limits
        self._answering = answering
        self._people = people
        self._feedback = feedback
        self._releases = releases
        self._asks_kafka = CapacityLimiter(1)  # what one hears is good for those who come meanwhile
        self.stream = Changes(materialiser)

    def _refusal(self, request: Request, scope: str) -> Response | None:
        """Answer a request without a token, or with one that lacks the scope."""
        status = self._access.refusal(bearer_token(request.headers), scopes=(scope,))
        if status is None:
            return None
        if status == 403:
            return _error(status, SettingsError(f"this needs a token with the scope {scope}."))
        return _error(status, SettingsError("the view asks for its token.", next_step="Set LIGHTSTREAM_VIEW_TOKEN."))

    async def sql(self, request: Request) -> Response:
        if refusal := self._refusal(request, SQL):
            return refusal
        try:
            body = await read_body(request, REQUEST_BYTES_MAX)
            if self._people is not None and self._is_of_people(request):
                return await self._people.answer(request, body)
            sql_request = parse_request(body, self._limits)
            await wait_for_view(
                request, self._materialiser, sql_request, self._answering.lanes[lane_named(request.headers)]
            )
            rebuilding = self._materialiser.rebuilding is not None
            return await self._answering.answer(request, sql_request, rebuilding=rebuilding)
        except ClientGoneError:
            return Response(status_code=CLIENT_GONE)
        except PeoplesViewAwayError as error:
            return _error(502, error)
        except ServiceUnavailableError as error:
            return _error(503, error)
        except BodyTooLargeError as error:
            return _error(413, error)
        except LightstreamError as error:
            return _error(400, error)

    def _is_of_people(self, request: Request) -> bool:
        """Training's statements come with a token that may control, where there are scopes."""
        lane = lane_named(request.headers)
        refused = self._access.refusal(bearer_token(request.headers), scopes=(CONTROL,)) is not None
        return lane == "others" or (lane == "stores" and refused)

    async def named_queries(self, request: Request) -> Response:
        return self._refusal(request, READ) or JSONResponse({"queries": [asdict(query) for query in QUERIES.values()]})

    async def queries(self, request: Request) -> Response:
        if refusal := self._refusal(request, SQL):
            return refusal
        elsewhere = [] if self._people is None else await self._people.queries(request)
        return JSONResponse({"queries": [*self._answering.queries(), *elsewhere]})

    async def cancel(self, request: Request) -> Response:
        if refusal := self._refusal(request, SQL):
            return refusal
        query_id: str = request.path_params["query_id"]
        try:
            return self._answering.cancel(query_id)
        except NotFoundError as error:
            if self._people is None:
                return _error(404, error)
        try:
            return await self._people.cancel(request, query_id)
        except PeoplesViewAwayError as error:
            return _error(502, error)

    async def explain(self, request: Request) -> Response:
        if refusal := self._refusal(request, READ):
            return refusal
        try:
            lane_name = lane_named(request.headers, "dashboard")
            await wait_for_fetched(self._materialiser, self._answering.lanes[lane_name])
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

    async def feedback(self, request: Request) -> Response:
        if refusal := self._refusal(request, FEEDBACK):
            return refusal
        if self._feedback is None:
            memory = ServiceUnavailableError("a store in memory takes no scores.", next_step="Emit a reward instead.")
            return _error(501, memory)
        try:
            return await self._feedback.answer(request)
        except ClientGoneError:
            return Response(status_code=CLIENT_GONE)
        except (PublishError, ServiceUnavailableError) as error:
            return _error(503, error)
        except NotFoundError as error:
            return _error(404, error)
        except BodyTooLargeError as error:
            return _error(413, error)
        except LightstreamError as error:
            return _error(400, error)

    async def releases(self, request: Request) -> Response:
        if refusal := self._refusal(request, READ):
            return refusal
        if self._releases is None:
            return _no_releases()
        try:
            return await self._releases.all()
        except LightstreamError as error:
            return _error(503, error)

    async def change_release(self, request: Request) -> Response:
        if refusal := self._refusal(request, CONTROL):
            return refusal
        if self._releases is None:
            return _no_releases()
        try:
            return await self._releases.change(request, request.path_params["name"])
        except ClientGoneError:
            return Response(status_code=CLIENT_GONE)
        except (PublishError, ServiceUnavailableError) as error:
            return _error(503, error)
        except BodyTooLargeError as error:
            return _error(413, error)
        except LightstreamError as error:
            return _error(400, error)

    async def reasons(self, request: Request) -> Response:
        return self._refusal(request, READ) or reasons_answer()

    async def positions(self, request: Request) -> Response:
        if refusal := self._refusal(request, READ):
            return refusal
        silent_s = await run_sync(self._materialiser.silent_s, limiter=self._asks_kafka)
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
        return self._refusal(request, READ) or self.stream.response()

    async def healthz(self, request: Request) -> Response:
        failure = self._materialiser.failure
        if failure is not None:
            return JSONResponse({"status": "failed", "reason": str(failure)}, status_code=503)
        return JSONResponse({"status": "ok"})


def _no_releases() -> Response:
    return _error(501, ServiceUnavailableError("a store in memory has no releases.", next_step="Start Kafka."))


def _error(status: int, error: LightstreamError) -> Response:
    return JSONResponse(view_error(error), status_code=status)


def _refused(status: int, message: str) -> Response:
    return _error(status, QueryError(f"{message}."))


def _nested(values: dict[Place, int]) -> dict[str, dict[str, int]]:
    nested: dict[str, dict[str, int]] = {}
    for (topic, partition), value in sorted(values.items()):
        nested.setdefault(topic, {})[str(partition)] = value
    return nested
