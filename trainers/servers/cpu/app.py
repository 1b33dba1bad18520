"""The policy server's HTTP interface, in OpenAI's shape."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json, to_json
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

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

from ..chat_api.generation import Job
from ..chat_api.guard import guard
from ..chat_api.requests import ChatRequest, RequestError, parse_chat_request, parse_text_request
from ..chat_api.responses import AnswerHead, TokenText, chunk, completion, text_chunk, text_completion
from ..chat_api.streaming import stream_answer
from ..chat_api.text import Decode
from .policy_version import Versions
from .service import PolicyService, tokens_of


@dataclass(frozen=True, slots=True)
class Interface:
    """Parser and formatters of one of OpenAI's interfaces."""

    id_prefix: str
    parse: Callable[[object], ChatRequest]
    whole: Callable[[AnswerHead, ChatRequest, Job, Decode, TokenText], Any]
    chunk: Callable[..., dict[str, Any]]


CHAT = Interface("chatcmpl", parse_chat_request, completion, chunk)
TEXT = Interface("cmpl", parse_text_request, text_completion, text_chunk)

INTERFACES = {"/v1/chat/completions": CHAT, "/v1/completions": TEXT}
"""By path."""


def create_app(
    settings: Settings,
    versions: Versions,
    *,
    start: Callable[[], None] = lambda: None,
    stop: Callable[[], None] = lambda: None,
) -> Starlette:
    """The ASGI application.

    Args:
        settings: limits.
        versions: what to serve; may be empty at first.
        start, stop: called (in a thread) before the first and after the last request.
    """
    service = PolicyService(settings, versions)

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncGenerator[None]:
        await service.start()
        await asyncio.to_thread(start)
        try:
            yield
        finally:
            await asyncio.to_thread(stop)
            await service.stop()

    async def answer(request: Request) -> Response:
        interface = INTERFACES[request.url.path]
        try:
            body = await read_body(request, settings.llm_request_bytes_max)
            parsed = interface.parse(_json(body))
            job = await service.submit(parsed)
        except BodyTooLargeError as error:
            return error_response(RequestError(str(error), status=413, code="request_too_large"))
        except RequestError as error:
            return error_response(error)
        decode, token_text = service.decoder(parsed, job.version), tokens_of(job.version).text_of
        return await respond(request, parsed, job, interface, decode, token_text)

    async def models(_request: Request) -> Response:
        return _json_response({"object": "list", "data": [_entry(name) for name in versions.names()]})

    async def model(request: Request) -> Response:
        name = request.path_params["name"]
        try:
            await service.check(name)
        except RequestError as error:
            return error_response(error)
        return _json_response(_entry(name))

    async def health(_request: Request) -> Response:
        alive = service.engine.is_alive
        names = versions.names()
        body = {
            "status": "ok" if alive else "failed",
            "versions": names,
            "waiting": service.engine.waiting,
            "running": service.engine.running,
        }
        return _json_response(body, 200 if alive else 503)

    routes = [
        *(Route(path, answer, methods=["POST"]) for path in INTERFACES),
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


def _entry(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "lightstream"}


async def respond(
    http_request: Request, request: ChatRequest, job: Job, interface: Interface, decode: Decode, token_text: TokenText
) -> Response:
    """The answer of a job that has begun, whole or as a stream; the job is cancelled if the client goes."""
    version = job.version  # a successor may take its place any time
    answer_id = f"{interface.id_prefix}-{uuid.uuid4().hex}"
    head = AnswerHead(answer_id, int(time.time()), version.name, version.number)
    headers = {POLICY_VERSION_HEADER: str(version.number)}
    if version.resources_id:
        headers[RESOURCES_ID_HEADER] = version.resources_id
    if request.streams:
        events = stream_answer(head, request, job, decode, token_text, interface.chunk)
        return StreamingResponse(events, media_type="text/event-stream", headers=headers)
    try:
        await unless_disconnected(http_request, _reported(job))
    finally:
        job.cancelled = True  # nothing to cancel where it is over
    failure = next((generation.error for generation in job.generations if generation.error), None)
    if failure is not None:
        return error_response(RequestError(failure, status=500, code="generation_failed"))
    return _json_response(interface.whole(head, request, job, decode, token_text), headers=headers)


async def _reported(job: Job) -> None:
    while not job.reported:
        await job.news.wait()


def _json(body: bytes) -> Any:
    try:
        return from_json(body)
    except ValueError as error:
        raise RequestError(f"the body is not JSON: {error}") from error


def error_response(error: RequestError) -> Response:
    """The refusal of a request, in OpenAI's shape."""
    body = openai_error(error.message, status=error.status, parameter=error.parameter, code=error.code)
    headers = {"retry-after": "1"} if error.status in (429, 503) else {}
    return _json_response(body, error.status, headers)


def _json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(to_json(content), status, headers, media_type="application/json")
