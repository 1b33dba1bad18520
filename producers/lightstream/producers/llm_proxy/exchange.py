"""One request through the proxy: ask, capture, record, and only then answer."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

from pydantic_core import from_json, to_json
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from lightstream.runtime.clock import Clock
from lightstream.runtime.http_headers import POLICY_VERSION_HEADER, RESOURCES_ID_HEADER
from lightstream.runtime.http_server import (
    CLIENT_GONE,
    BodyTooLargeError,
    ClientGoneError,
    read_body,
    unless_disconnected,
)
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import LightstreamError
from lightstream.schemas.sampling import sampling_of_request

from .call import Call, Reply
from .capture import Completion, Wanted, capture, policy_version_of, without_extras
from .continuation import going_on, joined
from .dialects import Dialect, Endpoint
from .recording import CallRecorder
from .relay import ERROR_TEXT_MAX, StreamRelay
from .seeds import CallSeeds
from .upstream import Upstream, UpstreamAnswer, UpstreamError

__all__ = ["Exchange", "error_reply", "response_of"]

PASSED_ON_HEADERS = (POLICY_VERSION_HEADER, RESOURCES_ID_HEADER, "x-request-id", "retry-after")

EXTRAS: dict[Endpoint, dict[str, Any]] = {
    "chat/completions": {"logprobs": True, "return_token_ids": True},
    "completions": {"logprobs": 1, "return_token_ids": True},  # a number there: so many alternatives
}
"""Requested in addition to what the agent asks for."""

RETRY_AFTER_S = 1

RETRIES_HEADER = "x-stainless-retry-count"
"""Of OpenAI's and Anthropic's clients: how often they tried the request before."""


class Exchange:
    """Handles one request after the other for any number of agents at once."""

    def __init__(self, settings: Settings, upstream: Upstream, recorder: CallRecorder, clock: Clock) -> None:
        self._settings = settings
        self._upstream = upstream
        self._recorder = recorder
        self._clock = clock
        self._seeds = CallSeeds()
        self._extras_refused: set[tuple[str, str]] = set()

    async def answer(self, request: Request, call: Call) -> Response:
        """Answer one request: read, ask, record, and only then reply. Gives up once the client has disconnected."""
        try:
            body = await read_body(request, self._settings.llm_request_bytes_max)
        except BodyTooLargeError as error:
            call.started_unix_nano = self._clock.now_unix_nano()
            return response_of(await self._recorded(call, self._failed(call, 413, str(error))))
        call.is_retry = request.headers.get(RETRIES_HEADER, "0") != "0"
        try:
            reply = await unless_disconnected(request, self._ask(call, body))
        except ClientGoneError:
            self._give_seed_back(call)
            self._recorder.record_abandoned(call)
            return Response(status_code=CLIENT_GONE)
        except asyncio.CancelledError:
            self._give_seed_back(call)
            self._recorder.record_abandoned(call)
            raise
        if reply.status >= HTTPStatus.BAD_REQUEST:
            self._give_seed_back(call)
        if reply.stream is not None:
            return _RelayedResponse(StreamRelay(self._settings, self._recorder, call, reply.stream, self._rest), reply)
        return response_of(await self._recorded(call, reply))

    async def _ask(self, call: Call, body: bytes) -> Reply:
        """Forward ``body`` and read the answer into ``call``; nothing is recorded yet.

        A streamed answer is only begun: its pieces are still to come.
        """
        call.started_unix_nano = self._clock.now_unix_nano()
        call.request_body = body
        try:
            asked: Any = from_json(body)
        except ValueError as error:
            return self._failed(call, 400, f"the request is not JSON: {error}")
        if not isinstance(asked, dict):
            return self._failed(call, 400, "the request is not a JSON object")
        call.requested_model = str(asked.get("model") or "")
        call.streams = asked.get("stream") is True
        try:
            call.translation = await call.dialect.translate(asked)
        except ValueError as error:
            return self._failed(call, 400, str(error))
        request = self._seeded(call, call.translation.request)
        if request is not asked:
            call.request_body = to_json(request)
        call.sampling_json = sampling_of_request(request)
        call.wanted = _wanted(request, call.dialect.endpoint)
        call.choices_wanted = _choices_wanted(request)
        call.asked = request | {"model": self._settings.llm_model} if self._settings.llm_model else request
        try:
            answer = await self._ask_with_extras(call.dialect.endpoint, call.asked, call.streams)
            return await self._reply(call, answer)
        except UpstreamError as error:
            return self._failed(call, error.status, str(error))

    async def _recorded(self, call: Call, reply: Reply) -> Reply:
        """Make the call durable; the reply may go out now. Without Kafka it is an error reply instead."""
        call.http_status = reply.status
        try:
            await self._recorder.record(call)
        except LightstreamError as error:
            message = f"the call could not be recorded, so its answer is withheld: {error}"
            return error_reply(call.dialect, 503, message)
        return reply

    async def models(self, dialect: Dialect) -> Reply:
        """The upstream's list of models."""
        try:
            answer = await self._upstream.models()
        except UpstreamError as error:
            return error_reply(dialect, error.status, str(error))
        return Reply(answer.status, answer.body or b"", content_type=answer.content_type)

    def _seeded(self, call: Call, request: dict[str, Any]) -> dict[str, Any]:
        """The request, with a seed if its run has one and it has none of its own."""
        if call.run_seed is None or request.get("seed") is not None:
            return request
        call.drawn_seed = self._seeds.draw(call.run_seed, call.caller, request, is_retry=call.is_retry)
        return request if call.drawn_seed is None else request | {"seed": call.drawn_seed.value}

    def _give_seed_back(self, call: Call) -> None:
        if call.drawn_seed is not None:
            self._seeds.give_back(call.drawn_seed)

    async def _ask_with_extras(self, endpoint: Endpoint, request: dict[str, Any], streams: bool) -> UpstreamAnswer:
        """Ask for token ids and log-probabilities too; a model that refuses them is no longer asked for them."""
        asked = (endpoint, str(request.get("model")))
        if asked not in self._extras_refused:
            extras = EXTRAS[endpoint]
            if request.get("logprobs"):
                extras = {name: value for name, value in extras.items() if name != "logprobs"}
            answer = await self._upstream.ask(endpoint, request | extras, streams=streams)
            if answer.status not in (400, 422) or not _names_extras(answer.body):
                return answer
        plain = await self._upstream.ask(endpoint, request, streams=streams)
        if plain.status == 200:
            self._extras_refused.add(asked)
        return plain

    async def _rest(self, call: Call, completion: Completion) -> UpstreamAnswer:
        """The answer to the request for the rest of an interrupted one, whose first part is ``completion``.

        Raises:
            UpstreamError: there is none.
        """
        request = going_on(call.asked, completion, call.choices_wanted)
        answer = await self._ask_with_extras(call.dialect.endpoint, request, call.streams)
        if answer.status != 200 or (answer.pieces is None) is call.streams:
            message = (
                f"the LLM server interrupted the answer for new weights, and does not go on with it: {answer.status} "
            )
            raise UpstreamError(message + _shown(answer.body), status=502)
        return answer

    async def _reply(self, call: Call, answer: UpstreamAnswer) -> Reply:
        headers = {name: answer.headers[name] for name in PASSED_ON_HEADERS if name in answer.headers}
        call.resources_id = answer.headers.get(RESOURCES_ID_HEADER)
        version = answer.headers.get(POLICY_VERSION_HEADER)
        call.policy_version = policy_version_of(version, None)
        reply = Reply(answer.status, answer.body or b"", headers, answer.content_type)
        if answer.status != 200:
            call.error_message = f"the LLM server answered {answer.status}: {_shown(answer.body)}"
            reply.body = call.dialect.passed_on_error(answer.status, reply.body)
        elif answer.pieces is not None:
            reply.stream = answer
        else:
            await self._read_whole(call, reply, version)
        return reply

    async def _read_whole(self, call: Call, reply: Reply, version: str | None) -> None:
        body = _completion_body(reply.body)
        capture(call.completion, body)
        was_interrupted = call.completion.is_interrupted
        while call.completion.is_interrupted:
            rest = await self._rest(call, call.completion)
            body = joined(body, _completion_body(rest.body or b""))
            call.completion = Completion()
            capture(call.completion, body)
        call.policy_version = policy_version_of(version, call.completion.model)
        if not call.wanted.everything:
            without_extras(body, call.wanted)
        assert call.translation is not None, "the request was translated"  # noqa: S101  # our own order of steps
        translated = call.translation.whole(body)
        if translated is not body:
            call.seen_response_id = _other_id(translated.get("id"), call)
        if translated is not body or not call.wanted.everything or was_interrupted:
            reply.body = to_json(translated)

    def _failed(self, call: Call, status: int, message: str) -> Reply:
        call.error_message = message
        return error_reply(call.dialect, status, message)


class _RelayedResponse(StreamingResponse):
    """A streaming response that closes its relay however it ends, even if it never began."""

    def __init__(self, relay: StreamRelay, reply: Reply) -> None:
        super().__init__(relay.pieces(), reply.status, reply.headers, media_type=reply.content_type)
        self._relay = relay

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._relay.close()


def response_of(reply: Reply) -> Response:
    """The reply as an HTTP response."""
    return Response(reply.body, reply.status, reply.headers, media_type=reply.content_type)


def error_reply(dialect: Dialect, status: int, message: str) -> Reply:
    """An error in the agent's dialect; worth another try after a moment if it is 503."""
    headers = {"retry-after": str(RETRY_AFTER_S)} if status == 503 else {}
    return Reply(status, to_json(dialect.error(status, message)), headers)


def _completion_body(content: bytes) -> dict[str, Any]:
    try:
        body: Any = from_json(content)
    except ValueError:
        body = None
    if not isinstance(body, dict) or not isinstance(body.get("choices"), list):
        raise UpstreamError(f"the LLM server's answer is not a completion: {_shown(content)}", status=502)
    return body


def _wanted(request: dict[str, Any], endpoint: Endpoint) -> Wanted:
    logprobs = request.get("logprobs")
    asks = logprobs is True if endpoint == "chat/completions" else logprobs is not None
    return Wanted(logprobs=asks, token_ids=request.get("return_token_ids") is True)


def _choices_wanted(request: dict[str, Any]) -> int:
    """``n`` for each prompt: a list of texts or of lists of token ids is several prompts."""
    n = request.get("n")
    prompt = request.get("prompt")
    several = isinstance(prompt, list) and bool(prompt) and not isinstance(prompt[0], int)
    return (n if type(n) is int and n > 0 else 1) * (len(prompt) if isinstance(prompt, list) and several else 1)


def _other_id(seen: object, call: Call) -> str | None:
    return seen if isinstance(seen, str) and seen != call.completion.response_id else None


def _names_extras(body: bytes | None) -> bool:
    return body is not None and (b"return_token_ids" in body or b"logprobs" in body)


def _shown(body: bytes | None) -> str:
    return (body or b"")[:ERROR_TEXT_MAX].decode("utf-8", errors="replace")
