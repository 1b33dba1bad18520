"""The ASGI application over a store: its access, and its answers where no route is."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import entry_points
from typing import TypeAlias

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from lightstream.runtime.http.access import Access, access_of, bearer_token
from lightstream.runtime.http.door import JSON, Door
from lightstream.runtime.http.own_tokens import token_of
from lightstream.runtime.http.server import CLIENT_GONE, BodyTooLargeError
from lightstream.runtime.http.tokens import CONTROL, INGEST, READ
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import LightstreamError, SettingsError
from lightstream.schemas.interfaces import LightningStore

from ._answers import RETRY_AFTER, Answer, error_answer, refusal
from ._route import Serving
from ._routes import ROUTES
from ._wire import PREFIX, TRACES_PATH

REQUESTS_AT_ONCE_MAX = 8192
"""Waiting requests cost a task and a socket each; this many runners and algorithms may wait on one server."""

REFUSED_BYTES_READ_MAX = 256 * 1024 * 1024
"""Of a body over the limit this much is read and thrown away: a client that still sends would miss the answer."""

MEDIA_TYPES = (JSON, "application/x-protobuf", "application/protobuf")
"""Traces may come as protobuf; the routes for that look at it once more."""

ROUTES_GROUP = "lightstream.store_routes"
"""Group of entry points, each of which names a list of routes that every store server has beside its own."""

READ_BY_POST = re.compile(r"/(rollouts|spans|workers)/search|/rollouts/[^/]+/attempts/search|/waits/rollouts")

OTLP_PATHS = (TRACES_PATH, "/v1/metrics", "/v1/logs", "/v1/development/profiles")

TracesEndpoint: TypeAlias = "Callable[[Request], Awaitable[Response]]"
"""Answers requests of OTLP/HTTP exporters for traces."""


def create_app(
    store: LightningStore,
    settings: Settings,
    *,
    cors_allow_origins: Sequence[str] = (),
    traces: TracesEndpoint | None = None,
) -> FastAPI:
    """Make the application. It belongs to the event loop that serves it, and once ``app.state.serving.stopping`` is
    set, there, the waits under way end, so that the server can stop.

    Args:
        settings: name the token that requests must carry, and the largest body.
        cors_allow_origins: whose pages may ask from a browser; ``*`` for all.
        traces: takes OTLP at ``/v1/traces``; without it, that is answered with 501.
    """
    routes = [*ROUTES, *_added_routes()]
    if traces is not None:
        routes.append(Route(TRACES_PATH, traces, methods=["POST"]))
    app = FastAPI(
        routes=routes,
        exception_handlers={
            BodyTooLargeError: _too_large,
            ClientDisconnect: _disconnected,
            Exception: _on_defect,
            HTTPException: _no_route,
            LightstreamError: _on_error,
        },
        openapi_url=None,
        redirect_slashes=False,
    )
    app.state.serving = Serving(store, settings.store_request_bytes_max, takes_traces=traces is not None)
    access = store_access(settings)
    app.add_middleware(_Gate, access=access)
    app.add_middleware(
        Door,
        access=access,
        refuse=refusal,
        media_types=MEDIA_TYPES,
        origins=cors_allow_origins,
        open_paths=("/healthz", f"{PREFIX}/health"),
    )
    if cors_allow_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(cors_allow_origins),
            allow_methods=["*"],
            allow_headers=["*"],
            allow_credentials=True,
            expose_headers=["*"],
        )
    return app


def store_access(settings: Settings) -> Access:
    """Return which tokens the server takes."""
    return access_of(settings, token_of(settings, "store_token"))


def _scope(method: str, path: str) -> str:
    """What a token of the file needs for a request: to read, to send spans, else (and of added routes) all there is."""
    route = path.removeprefix(PREFIX)
    if READ_BY_POST.fullmatch(route) or (method == "GET" and path.startswith(PREFIX)):
        return READ
    return INGEST if route == TRACES_PATH or route == "/spans" or route.startswith("/spans/") else CONTROL


def _added_routes() -> list[BaseRoute]:
    """Return the routes of installed packages, by the names of their entry points. The server's own come before them.

    Raises:
        SettingsError: a package cannot be loaded.
    """
    added: list[BaseRoute] = []
    for point in sorted(entry_points(group=ROUTES_GROUP), key=lambda point: point.name):
        try:
            added += point.load()
        except (ImportError, AttributeError) as error:
            raise SettingsError(
                f"the routes {point.name!r} of the store's server cannot be loaded from {point.value}: {error}",
                next_step="Install their packages, or remove the package that adds them.",
            ) from error
    return added


class _Gate:
    """Refuses requests beyond the number that may be in progress, and those without the token.

    It also routes by the path as it was sent, since ids in it may have any character, escaped.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access
        self._in_progress = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
        scope["path"] = raw_path.partition(b"?")[0].decode("latin-1")
        app = self._refused(Request(scope)) or self._app
        self._in_progress += 1
        try:
            await app(scope, receive, send)
        finally:
            self._in_progress -= 1

    def _refused(self, request: Request) -> Answer | None:
        if self._in_progress >= REQUESTS_AT_ONCE_MAX:
            detail = f"{REQUESTS_AT_ONCE_MAX:,} requests are in progress, the most allowed."
            return refusal(503, detail, headers=RETRY_AFTER)
        asks_health = (request.method, request.scope["path"]) == ("GET", f"{PREFIX}/health")
        if asks_health and "authorization" not in request.headers:
            return None
        token = bearer_token(request.headers)
        scope = _scope(request.method, request.scope["path"])
        status = self._access.refusal(token, scopes=(scope,))
        if status is None:
            return None
        if status == 403:
            return refusal(status, f"this needs a token with the scope {scope}.", "SettingsError")
        problem = "a token other than its own" if token else "no token"
        return refusal(
            401,
            f"the store server was given {problem}.",
            "SettingsError",
            "Set LIGHTSTREAM_STORE_TOKEN to the server's (it goes into `authorization: Bearer …`).",
            {"www-authenticate": "Bearer"},
        )


async def _no_route(request: Request, error: Exception) -> Answer:
    path: str = request.scope["path"]
    fitting = [route for route in request.app.routes if isinstance(route, Route) and route.path_regex.match(path)]
    if fitting:
        allowed = ", ".join(sorted({method for route in fitting for method in route.methods or ()}))
        return refusal(405, f"{path} takes {allowed}, not {request.method}.", headers={"allow": allowed})
    if path in OTLP_PATHS:
        takes = "takes only traces, at /v1/traces" if request.app.state.serving.takes_traces else "takes no OTLP"
        return refusal(501, f"this server {takes}; send spans to /v1/agl/spans.", "NotImplementedError")
    return refusal(404, f"there is nothing at {path}.")


async def _too_large(request: Request, error: BodyTooLargeError) -> Answer:
    size_bytes = 0
    async for piece in request.stream():
        size_bytes += len(piece)
        if size_bytes > REFUSED_BYTES_READ_MAX:
            break
    return refusal(413, error.message, "StoreError", "Send it in several requests.")


async def _disconnected(request: Request, error: Exception) -> Answer:
    return refusal(CLIENT_GONE, "the client disconnected")


async def _on_error(request: Request, error: LightstreamError) -> Answer:
    return error_answer(error)


async def _on_defect(request: Request, error: Exception) -> Answer:
    """Answer for an error that no store should raise. The server logs it with its traceback."""
    return refusal(500, f"the store server failed: {type(error).__name__}: {error}", type(error).__name__)
