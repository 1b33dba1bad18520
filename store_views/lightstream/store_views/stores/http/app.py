"""The ASGI application: who may ask, what is asked, and the answer as bytes. What the store does is in ``_calls``."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocketClose

from lightstream.runtime.http_server import BodyTooLargeError, read_body
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import LightstreamError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import LogPositions

from ..identity import repeatable
from ._answers import AnswerMemory
from ._calls import Call
from ._errors import Answer, error_answer, no_body_answer, refusal, rejected_answer
from ._execution import RETRY_AFTER, done
from ._handing_out import HandingOut, hung_up_answer
from ._hanging_up import WaitingClient
from ._routes import LEGACY, ROUTES, Found, Route, find_route
from ._wire import ASKS_AGAIN, IDEMPOTENCY_KEY, POSITIONS, PREFIX, TRACES_PATH

__all__ = ["StoreApplication", "TracesEndpoint", "create_app"]

logger = logging.getLogger(__name__)

REQUESTS_AT_ONCE_MAX = 8192
"""Waiting requests cost a task and a socket each; this many runners and algorithms may wait on one server."""

REFUSED_BYTES_READ_MAX = 256 * 1024 * 1024
"""Of a body over the limit this much is read and thrown away: a client that still sends would miss the answer."""

OTLP_PATHS = (TRACES_PATH, "/v1/metrics", "/v1/logs", "/v1/development/profiles")

TracesEndpoint: TypeAlias = "Callable[[Request], Awaitable[Response]]"
"""What answers requests of OTLP/HTTP exporters for traces."""


def create_app(
    store: LightningStore,
    settings: Settings,
    *,
    cors_allow_origins: Sequence[str] = (),
    traces: TracesEndpoint | None = None,
) -> StoreApplication:
    """The application over a store.

    Args:
        settings: name the token that requests must carry, and the largest body.
        cors_allow_origins: whose pages may ask from a browser; ``*`` for all.
        traces: takes OTLP at ``/v1/traces``; without it, that is answered with 501.
    """
    return StoreApplication(store, settings, cors_allow_origins, traces)


class StoreApplication(Starlette):
    """All routes of the store. Belongs to the event loop that serves it."""

    def __init__(
        self,
        store: LightningStore,
        settings: Settings,
        cors_allow_origins: Sequence[str] = (),
        traces: TracesEndpoint | None = None,
    ) -> None:
        self._store = store
        self._traces = traces
        self._body_bytes_max = settings.store_request_bytes_max
        self._token = None if settings.store_token is None else settings.store_token.get_secret_value().encode()
        self._answers = AnswerMemory()
        self._handing_out = HandingOut(store, self._answers)
        self._stopping = asyncio.Event()
        self._under_way = 0

        super().__init__(exception_handlers={Exception: _on_defect})
        if cors_allow_origins:
            self.add_middleware(
                CORSMiddleware,
                allow_origins=list(cors_allow_origins),
                allow_methods=["*"],
                allow_headers=["*"],
                allow_credentials=True,
                expose_headers=["*"],
            )
        self.router.default = self._serve  # ids may have any character: Starlette's own routes match decoded paths

    def stop_waiting(self) -> None:
        """End the waits under way, so that the server can stop. Call it in the server's loop."""
        self._stopping.set()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await (await self._respond(Request(scope, receive, send)))(scope, receive, send)
        else:
            await WebSocketClose()(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        if self._under_way >= REQUESTS_AT_ONCE_MAX:
            answer = refusal(
                503, f"{REQUESTS_AT_ONCE_MAX:,} requests are in progress, the most allowed.", headers=RETRY_AFTER
            )
        else:
            self._under_way += 1
            try:
                if self._traces is not None and request.method == "POST" and request.scope["path"] == TRACES_PATH:
                    return await self._take_traces(request, self._traces)
                answer = await self._answer(request)
            except BodyTooLargeError as error:
                await _read_the_rest(request)
                answer = refusal(413, error.message, "StoreError", "Send it in several requests.")
            finally:
                self._under_way -= 1
        return Response(answer.content, answer.status, answer.headers, media_type="application/json")

    async def _take_traces(self, request: Request, traces: TracesEndpoint) -> Response:
        refused = self._unauthorised(request)
        if refused is None:
            return await traces(request)
        return Response(refused.content, refused.status, refused.headers, media_type="application/json")

    async def _answer(self, request: Request) -> Answer:
        raw_path: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
        path = raw_path.decode("ascii", errors="replace")
        try:
            under_prefix = path.startswith(f"{PREFIX}/")
            found = find_route(request.method, path.removeprefix(PREFIX), ROUTES if under_prefix else LEGACY)
        except UnicodeDecodeError:
            return refusal(400, f"the path {path!r} has an id that is not UTF-8.", "StoreError")
        is_public = isinstance(found, Found) and found.route.is_public and "authorization" not in request.headers
        if not is_public and (refused := self._unauthorised(request)) is not None:
            return refused
        if isinstance(found, Found):
            try:
                await self._see(request)
            except LightstreamError as error:
                return error_answer(error)
            return self._with_positions(await self._asked(request, found, raw_path))
        if found:
            allowed = ", ".join(found)
            return refusal(405, f"{path} takes {allowed}, not {request.method}.", headers={"allow": allowed})
        if path in OTLP_PATHS:
            return self._no_otlp(request.method, path)
        return refusal(404, f"there is nothing at {path}.")

    def _no_otlp(self, method: str, path: str) -> Answer:
        if path == TRACES_PATH and self._traces is not None:
            return refusal(405, f"{path} takes POST, not {method}.", headers={"allow": "POST"})
        here = "takes only traces, at /v1/traces" if self._traces is not None else "takes no OTLP"
        return refusal(501, f"this server {here}; send spans to /v1/agl/spans.", "NotImplementedError")

    async def _asked(self, request: Request, found: Found, raw_path: bytes) -> Answer:
        route = found.route
        body = await read_body(request, self._body_bytes_max)
        if not body and route.method != "GET" and not route.body_optional:
            return no_body_answer()
        try:
            asked = _query(route, request) if route.method == "GET" else _body(route, body)
        except ValidationError as error:
            return rejected_answer(error, "query" if route.method == "GET" else "body")
        call = Call(
            self._store,
            found.ids,
            asked,
            self._stopping,
            self._handing_out,
            asks_again=ASKS_AGAIN in request.headers,
            takes_traces=self._traces is not None,
        )
        key = request.headers.get(IDEMPOTENCY_KEY) if route.writes else None
        digest = b"" if key is None else hashlib.sha256(raw_path + b"\0" + body).digest()
        try:
            if route.hands_out or route.waits:
                return await self._awaited(request, route, call, key, digest)
            return await done(route, call) if key is None else await self._once(route, call, key, digest)
        except LightstreamError as error:
            return error_answer(error)

    async def _once(self, route: Route, call: Call, key: str, digest: bytes) -> Answer:
        async def do() -> Answer:
            # Another server may have done it, and been killed before it answered: the same ids make it the same write.
            with repeatable(f"{key} {digest.hex()}"):
                return await done(route, call)

        return await self._answers.once(key, digest, do)

    async def _awaited(self, request: Request, route: Route, call: Call, key: str | None, digest: bytes) -> Answer:
        """As for other routes, but ended when the client hangs up."""
        client = WaitingClient(request)
        try:
            if route.hands_out:
                return await self._handing_out.once(client, key, digest, partial(done, route, call))
            return await client.unless_gone(done(route, call)) or hung_up_answer()
        finally:
            client.close()

    async def _see(self, request: Request) -> None:
        """Have the answer reflect what the client has seen, at whichever server."""
        if text := request.headers.get(POSITIONS):
            seen = LogPositions.from_text(text)
            if not self._store.positions().covers(seen):
                await asyncio.to_thread(self._store.see, seen)  # it may ask Kafka how far the log goes

    def _with_positions(self, answer: Answer) -> Answer:
        text = self._store.positions().to_text()
        return replace(answer, headers=answer.headers | {POSITIONS: text}) if text else answer

    def _unauthorised(self, request: Request) -> Answer | None:
        if self._token is None:
            return None
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and hmac.compare_digest(token.strip().encode("latin-1"), self._token):
            return None
        problem = "a token other than its own" if token else "no token"
        return refusal(
            401,
            f"the store server was given {problem}.",
            "SettingsError",
            "Set LIGHTSTREAM_STORE_TOKEN to the server's (it goes into `authorization: Bearer …`).",
            {"www-authenticate": "Bearer"},
        )


def _body(route: Route, body: bytes) -> BaseModel:
    if route.body_optional and body.strip() in (b"", b"null"):
        body = b"{}"
    return route.form.model_validate_json(body)


def _query(route: Route, request: Request) -> BaseModel:
    """A query string as the route's form: a name may come several times where a list is asked for."""
    values: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        field = route.form.model_fields.get(name)
        if field is not None and "list" in str(field.annotation):
            values.setdefault(name, []).append(value)
        else:
            values[name] = value
    return route.form.model_validate(values)


async def _read_the_rest(request: Request) -> None:
    size_bytes = 0
    try:
        async for piece in request.stream():
            size_bytes += len(piece)
            if size_bytes > REFUSED_BYTES_READ_MAX:
                return
    except ClientDisconnect:
        return  # nobody is left to be told


async def _on_defect(request: Request, error: Exception) -> Response:
    """An error that no store should raise. It is logged with its traceback by the server."""
    answer = refusal(500, f"the store server failed: {type(error).__name__}: {error}", type(error).__name__)
    return Response(answer.content, answer.status, media_type="application/json")
