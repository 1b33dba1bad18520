"""The LLM proxy's HTTP interface: OpenAI's and Anthropic's, with rollout and attempt in the URL or in headers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable

from pydantic_core import from_json, to_json
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from lightstream.schemas.clock import Clock, SystemClock
from lightstream.schemas.http_server import CLIENT_GONE, BodyTooLargeError, read_body
from lightstream.schemas.kafka import Publisher
from lightstream.schemas.settings import Settings

from .access import Access
from .call import Call, caller_of
from .dialects import ANTHROPIC_MESSAGES, CHAT, COMPLETIONS, Dialect, ResponsesDialect
from .dialects.messages import counted_tokens
from .exchange import Exchange, error_reply
from .recorder import CallRecorder
from .relay import StreamRelay
from .turn import Reply, Turn
from .upstream import Upstream

__all__ = ["create_app"]

DISCONNECT_CHECK_S = 0.25
"""How often a call that takes longer is checked for a client that has gone."""

PREFIXES = tuple(
    owner + version for owner in ("", "/rollout/{rollout_id}/attempt/{attempt_id}") for version in ("/v1", "", "/v1/v1")
)
"""Before each path. Some clients take a base URL with ``/v1``, some without, and Anthropic's adds its own."""

Handler = Callable[[Request], Awaitable[Response]]


def create_app(
    settings: Settings,
    upstream: Upstream,
    publisher: Publisher,
    *,
    clock: Clock | None = None,
    stop: Callable[[], object] = lambda: None,
) -> Starlette:
    """The ASGI application.

    Args:
        settings: limits.
        upstream: what answers; started and stopped with the application.
        publisher: where calls are recorded.
        clock: time of the spans.
        stop: called (in a thread) after the last request: time to flush the publisher.
    """
    clock = clock or SystemClock()
    exchange = Exchange(settings, upstream, CallRecorder(publisher, clock), clock)
    access = Access(settings)
    dialects: dict[str, Dialect] = {
        "/chat/completions": CHAT,
        "/completions": COMPLETIONS,
        "/responses": ResponsesDialect(),  # remembers this application's conversations
        "/messages": ANTHROPIC_MESSAGES,
    }

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncGenerator[None]:
        await upstream.start()
        try:
            yield
        finally:
            await upstream.stop()
            await asyncio.to_thread(stop)

    def calls_in(dialect: Dialect) -> Handler:
        async def call(request: Request) -> Response:
            try:
                turn = Turn(Call(caller_of(request.path_params, request.headers)), dialect)
            except ValueError as error:
                return _response(error_reply(dialect, 400, str(error)))
            try:
                body = await read_body(request, settings.llm_request_bytes_max)
            except BodyTooLargeError as error:
                turn.call.started_unix_nano = clock.now_unix_nano()
                turn.call.error_message = str(error)
                return _response(await exchange.record(turn, error_reply(dialect, 413, str(error))))
            return await _answer(exchange, request, turn, body)

        return call

    async def count_tokens(request: Request) -> Response:
        try:
            asked = from_json(await read_body(request, settings.llm_request_bytes_max))
            if not isinstance(asked, dict):
                raise ValueError("the request is not a JSON object")
            reply = Reply(200, to_json({"input_tokens": await counted_tokens(asked)}))
        except BodyTooLargeError as error:
            reply = error_reply(ANTHROPIC_MESSAGES, 413, str(error))
        except ValueError as error:
            reply = error_reply(ANTHROPIC_MESSAGES, 400, str(error))
        return _response(reply)

    async def models(_request: Request) -> Response:
        return _response(await exchange.models(CHAT))

    async def health(_request: Request) -> Response:
        return Response(to_json({"status": "ok"}), media_type="application/json")

    routes = [Route("/healthz", health, methods=["GET"])]
    for prefix in PREFIXES:
        for path, dialect in dialects.items():
            routes.append(Route(prefix + path, _guarded(access, dialect, calls_in(dialect)), methods=["POST"]))
        counting = _guarded(access, ANTHROPIC_MESSAGES, count_tokens)
        routes.append(Route(f"{prefix}/messages/count_tokens", counting, methods=["POST"]))
        routes.append(Route(f"{prefix}/models", _guarded(access, CHAT, models), methods=["GET"]))
    return Starlette(routes=routes, lifespan=lifespan)


def _guarded(access: Access, dialect: Dialect, handler: Handler) -> Handler:
    """The handler for those who may ask. Others get 401, which no client tries again; nothing is recorded."""

    async def guarded(request: Request) -> Response:
        if access.allows(request.headers):
            return await handler(request)
        message = "the proxy asks for a token: give the client LIGHTSTREAM_PROXY_TOKEN's value as its API key"
        return _response(error_reply(dialect, 401, message))

    return guarded


async def _answer(exchange: Exchange, request: Request, turn: Turn, body: bytes) -> Response:
    asking = asyncio.ensure_future(exchange.ask(turn, body))
    try:
        while not (await asyncio.wait((asking,), timeout=DISCONNECT_CHECK_S))[0]:
            if await request.is_disconnected():
                exchange.abandoned(turn.call)
                return Response(status_code=CLIENT_GONE)
        reply = asking.result()
    except asyncio.CancelledError:
        exchange.abandoned(turn.call)
        raise
    finally:
        if not asking.done():
            asking.add_done_callback(_close_unread)
            asking.cancel()
    if reply.stream is not None:
        return _RelayedResponse(StreamRelay(exchange, turn, reply.stream), reply)
    return _response(await exchange.record(turn, reply))


def _close_unread(asking: asyncio.Future[Reply]) -> None:
    """A stream that began just when its client went."""
    if not asking.cancelled() and asking.exception() is None:
        stream = asking.result().stream
        if stream is not None:
            stream.close()


class _RelayedResponse(StreamingResponse):
    """A streaming response whose relay is closed however it ends, even if it never began."""

    def __init__(self, relay: StreamRelay, reply: Reply) -> None:
        super().__init__(relay.pieces(), reply.status, reply.headers, media_type=reply.content_type)
        self._relay = relay

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._relay.close()


def _response(reply: Reply) -> Response:
    return Response(reply.body, reply.status, reply.headers, media_type=reply.content_type)
