"""The policy server's interface in front of vLLM, for agents and the LLM proxy."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from pydantic_core import from_json, to_json
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from lightstream.producers.llm_proxy.openai_upstream import HttpUpstream
from lightstream.producers.llm_proxy.upstream import UpstreamAnswer, UpstreamError
from lightstream.runtime.http.errors import openai_error
from lightstream.runtime.http.headers import POLICY_VERSION_HEADER, RESOURCES_ID_HEADER
from lightstream.runtime.http.server import (
    BodyTooLargeError,
    ClientGoneError,
    client_gone,
    read_body,
    unless_disconnected,
)
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import LightstreamError

from ..chat_api.guard import guard
from ..chat_api.requests import ChatRequest, RequestError
from ..cpu.app import INTERFACES, error_response, respond
from ..cpu.service import tokens_of
from .answers import TOO_SLOW, TRIES, Answers
from .client import SERVED_NAME
from .server import VllmServer
from .token_requests import parse_token_request

LOOK_S = 0.05


def create_app(settings: Settings, server: VllmServer) -> Starlette:
    """The ASGI application in front of ``server``."""
    upstream = HttpUpstream(settings)
    answers = Answers(server, upstream, server.options.swap_timeout_s) if settings.policy_swap != "drain" else None
    server.under_way = answers

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncGenerator[None]:
        await upstream.start()
        if answers is not None:
            answers.start()
        try:
            yield
        finally:
            if answers is not None:
                await answers.stop()
            await upstream.stop()

    async def answer(request: Request) -> Response:
        try:
            content = await read_body(request, settings.llm_request_bytes_max)
            body: Any = from_json(content)
        except BodyTooLargeError as error:
            return _error(str(error), 413)
        except ValueError as error:
            return _error(f"the body is not JSON: {error}", 400)
        if not isinstance(body, dict):
            return _error("the body must be a JSON object", 400)
        refusal = await unless_disconnected(request, _known(body))
        if refusal is not None:
            return refusal
        path = request.url.path
        parsed = None if answers is None else parse_token_request(path, content, server.options.arguments)
        if answers is None or parsed is None:
            return await unless_disconnected(request, _ask(path, body))
        return await _answer(answers, request, parsed, body)

    async def _known(body: dict[str, Any]) -> Response | None:
        """Wait for a version that is not known yet; returns a refusal if it does not come."""
        name = body.get("model") or SERVED_NAME
        deadline = asyncio.get_running_loop().time() + settings.policy_version_wait_s
        while not _is_known(server, name):
            refusal = server.refusal(name) if isinstance(name, str) and "@" in name else None
            if refusal is not None:
                return error_response(RequestError(refusal, parameter="model", status=404, code="model_refused"))
            if asyncio.get_running_loop().time() > deadline:
                return _error(f"there is no model {name!r}; there are: {', '.join(_names(server)) or 'none yet'}", 404)
            await asyncio.sleep(LOOK_S)
        return None

    async def _ask(path: str, body: dict[str, Any]) -> Response:
        """vLLM's own answer, of one version."""
        name = body.get("model") or SERVED_NAME
        for attempt in range(TRIES):
            await server.gate.enter()
            try:
                response = await _once(path, body, str(name))
            except UpstreamError as error:
                server.gate.leave()
                if attempt + 1 == TRIES or error.status == TOO_SLOW:
                    return _error(str(error), error.status)
            except BaseException:
                server.gate.leave()
                raise
            else:
                return response
            try:  # it ended: outside of the gate, so that an exchange does not wait for us
                await asyncio.to_thread(server.make_ready)
            except LightstreamError as error:
                return _error(str(error), 503)
        raise AssertionError("every try returns or raises")

    async def _once(path: str, body: dict[str, Any], name: str) -> Response:
        """One try, within the gate, which is left when the answer is over."""
        served, model = server.served(name)
        fields = body | {"model": model}
        got = await upstream.send(
            "POST", f"{server.url}{path}", to_json(fields), api_key=None, streams=body.get("stream") is True
        )
        headers = {POLICY_VERSION_HEADER: str(served.number)}
        if served.resources_id:
            headers[RESOURCES_ID_HEADER] = served.resources_id
        if got.pieces is None:
            server.gate.leave()
            return Response(got.body, got.status, headers, media_type=got.content_type)
        return _Stream(got, server, headers)

    async def models(_request: Request) -> Response:
        entries = [{"id": n, "object": "model", "created": 0, "owned_by": "lightstream"} for n in _names(server)]
        return Response(to_json({"object": "list", "data": entries}), media_type="application/json")

    async def model(request: Request) -> Response:
        name = request.path_params["name"]
        if _is_known(server, name):
            return Response(to_json({"id": name, "object": "model"}), media_type="application/json")
        refusal = server.refusal(name)
        code = "model_not_found" if refusal is None else "model_refused"
        message = refusal or f"there is no model {name!r} yet"
        return error_response(RequestError(message, parameter="model", status=404, code=code))

    async def health(_request: Request) -> Response:
        runs = server.current is None or await asyncio.to_thread(lambda: server.pid) is not None
        running = server.gate.inside + (0 if answers is None else answers.running)
        body = {"status": "ok" if runs else "failed", "versions": _names(server), "running": running}
        return Response(to_json(body), 200 if runs else 503, media_type="application/json")

    routes = [
        Route("/v1/chat/completions", answer, methods=["POST"]),
        Route("/v1/completions", answer, methods=["POST"]),
        Route("/v1/models", models, methods=["GET"]),
        Route("/v1/models/{name:path}", model, methods=["GET"]),
        Route("/healthz", health, methods=["GET"]),
    ]
    return Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=guard(settings),
        exception_handlers={ClientGoneError: client_gone},
    )


async def _answer(answers: Answers, request: Request, chat: ChatRequest, body: dict[str, Any]) -> Response:
    """An answer made of tokens, which a new version may go on with."""
    try:
        job = await unless_disconnected(request, answers.submit(chat, body))
    except RequestError as error:
        return error_response(error)
    decode = answers.decoder(chat, job)
    return await respond(request, chat, job, INTERFACES[request.url.path], decode, tokens_of(job.version).text_of)


def _names(server: VllmServer) -> list[str]:
    """``policy`` and every version that is served, the newest first; empty while there is none."""
    if server.current is None:
        return []
    return list(dict.fromkeys([SERVED_NAME, server.current.name, *reversed(server.adapters)]))


def _is_known(server: VllmServer, name: object) -> bool:
    """Calls of an older version are answered too, by the present one: the answer names it."""
    current = server.current
    if current is None or not isinstance(name, str):
        return False
    number = name.rpartition("@")[2]
    older = "@" in name and number.isdecimal() and int(number) <= current.number and server.refusal(name) is None
    return name in _names(server) or (older and not server.adapters)


class _Stream(StreamingResponse):
    """A stream, within the gate until it is over."""

    def __init__(self, got: UpstreamAnswer, server: VllmServer, headers: dict[str, str]) -> None:
        super().__init__(got.pieces or _nothing(), got.status, headers, media_type=got.content_type)
        self._got = got
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._got.close()
            self._server.gate.leave()


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""


def _error(message: str, status: int) -> Response:
    headers = {"retry-after": "1"} if status in (429, 503) else {}
    return Response(to_json(openai_error(message, status=status)), status, headers, media_type="application/json")
