"""The LLM proxy's HTTP interface: OpenAI's, with rollout and attempt in the URL or in headers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable

from pydantic_core import to_json
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from lightstream.schemas.clock import Clock, SystemClock
from lightstream.schemas.http_server import BodyTooLargeError, read_body
from lightstream.schemas.kafka import Publisher
from lightstream.schemas.settings import Settings

from .call import Call, caller_of
from .capture import Wanted
from .exchange import Exchange, Reply, error_reply
from .recorder import CallRecorder
from .relay import StreamRelay
from .upstream import Upstream

__all__ = ["create_app"]

DISCONNECT_CHECK_S = 0.25
"""How often a call that takes longer is checked for a client that has gone."""


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

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncGenerator[None]:
        await upstream.start()
        try:
            yield
        finally:
            await upstream.stop()
            await asyncio.to_thread(stop)

    async def chat(request: Request) -> Response:
        try:
            call = Call(caller_of(request.path_params, request.headers))
        except ValueError as error:
            return _response(error_reply(400, str(error)))
        try:
            body = await read_body(request, settings.llm_request_bytes_max)
        except BodyTooLargeError as error:
            call.started_unix_nano = clock.now_unix_nano()
            call.error_message = str(error)
            return _response(await exchange.record(call, error_reply(413, str(error))))
        return await _answer(exchange, request, call, body)

    async def models(_request: Request) -> Response:
        return _response(await exchange.models())

    async def health(_request: Request) -> Response:
        return Response(to_json({"status": "ok"}), media_type="application/json")

    prefix = "/rollout/{rollout_id}/attempt/{attempt_id}"
    routes = [
        Route(f"{prefix}/v1/chat/completions", chat, methods=["POST"]),
        Route("/v1/chat/completions", chat, methods=["POST"]),
        Route(f"{prefix}/v1/models", models, methods=["GET"]),
        Route("/v1/models", models, methods=["GET"]),
        Route("/healthz", health, methods=["GET"]),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


async def _answer(exchange: Exchange, request: Request, call: Call, body: bytes) -> Response:
    asking = asyncio.ensure_future(exchange.ask(call, body))
    try:
        while not (await asyncio.wait((asking,), timeout=DISCONNECT_CHECK_S))[0]:
            if await request.is_disconnected():
                exchange.abandoned(call)
                return Response(status_code=499)
        reply, wanted = asking.result()
    except asyncio.CancelledError:
        exchange.abandoned(call)
        raise
    finally:
        if not asking.done():
            asking.add_done_callback(_close_unread)
            asking.cancel()
    if reply.stream is not None:
        return _RelayedResponse(StreamRelay(exchange, call, reply.stream, wanted), reply)
    return _response(await exchange.record(call, reply))


def _close_unread(asking: asyncio.Future[tuple[Reply, Wanted]]) -> None:
    """A stream that began just when its client went."""
    if not asking.cancelled() and asking.exception() is None:
        stream = asking.result()[0].stream
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
