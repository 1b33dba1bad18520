"""One request through the proxy: ask, capture, record, and only then answer."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from pydantic_core import from_json, to_json
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from lightstream.runtime.clock import Clock
from lightstream.runtime.http.headers import POLICY_VERSION_HEADER, RESOURCES_ID_HEADER
from lightstream.runtime.http.server import (
    CLIENT_GONE,
    BodyTooLargeError,
    ClientGoneError,
    unless_disconnected,
)
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import LightstreamError, RecordTooLargeError
from lightstream.schemas.sampling import sampling_of_request

from .call import Call, Reply
from .capture import Completion, RequestedExtras, capture, policy_version_of, with_provider_fields, without_extras
from .continuation import going_on, joined
from .dialects import Dialect, Endpoint
from .extras import Extras
from .metrics import ADDED_SECONDS, UPSTREAM_ANSWERS
from .recording import CallRecorder
from .relay import StreamRelay
from .releases import CANDIDATE, Releases, Routed, entry_of, with_releases
from .request_body import UnreadableBodyError, json_object, unpacked_body
from .seeds import CallSeeds
from .server_answers import as_stream, completion_in, json_answer_in, shown
from .upstream import Upstream, UpstreamAnswer, UpstreamError

logger = logging.getLogger(__name__)

PASSED_ON_HEADERS = (POLICY_VERSION_HEADER, RESOURCES_ID_HEADER, "x-request-id", "retry-after")

EVENT_STREAM = "text/event-stream"

RETRY_AFTER_S = 1

FALLBACK_CHARS_MAX = 500

RETRIES_HEADER = "x-stainless-retry-count"
"""Of OpenAI's and Anthropic's clients: how often they tried the request before."""

LOST = frozenset(
    {
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.FORBIDDEN,
        HTTPStatus.NOT_FOUND,
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.CONFLICT,
        HTTPStatus.TOO_MANY_REQUESTS,
    }
)
"""Answers below 500 that are the model server's fault, and not the request's."""


class Exchange:
    """Handles one request after the other for any number of agents at once.

    Args:
        gives_ids: answers carry their token ids also to agents that do not ask for them.
        releases: lead calls to the models that serve them; ``None`` where nobody follows the log.
    """

    def __init__(
        self,
        settings: Settings,
        upstream: Upstream,
        recorder: CallRecorder,
        clock: Clock,
        *,
        gives_ids: bool = False,
        releases: Releases | None = None,
    ) -> None:
        self._settings = settings
        self._upstream = upstream
        self._recorder = recorder
        self._clock = clock
        self._gives_ids = gives_ids
        self._releases = releases
        self._seeds = CallSeeds()
        self._extras = Extras(clock)

    async def answer(self, request: Request, call: Call) -> Response:
        """Answer one request: read, ask, record, and only then reply. Gives up once the client has disconnected."""
        try:
            body = await unpacked_body(request, self._settings.llm_request_bytes_max)
        except (BodyTooLargeError, UnreadableBodyError) as error:
            call.started_unix_nano = self._clock.now_unix_nano()
            status = error.status if isinstance(error, UnreadableBodyError) else 413
            return response_of(await self._recorded(call, self._failed(call, status, str(error))))
        call.resend_count = _resend_count(request.headers.get(RETRIES_HEADER, ""))
        began_s = time.perf_counter()
        response = await self._answer(request, call, body)
        ADDED_SECONDS.observe(time.perf_counter() - began_s - call.upstream_s)
        return response

    async def _answer(self, request: Request, call: Call, body: bytes) -> Response:
        try:
            reply = await unless_disconnected(request, self._ask(call, body, request.headers))
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

    async def _ask(self, call: Call, body: bytes, headers: Mapping[str, str]) -> Reply:
        """Forward ``body`` and read the answer into ``call``; nothing is recorded yet.

        A streamed answer is only begun: its pieces are still to come.
        """
        call.started_unix_nano = self._clock.now_unix_nano()
        call.request_body = body
        try:
            fields = json_object(body)
        except UnreadableBodyError as error:
            return self._failed(call, error.status, str(error))
        call.requested_model = str(fields.get("model") or "")
        call.streams = fields.get("stream") is True
        sent = fields
        if self._releases is not None:
            if not self._releases.is_read:
                await self._releases.known()
            if call.requested_model in self._releases.states:
                call.release = self._releases.route(fields, call.caller, headers)
            if call.release is not None:
                sent = fields | {"model": call.release.model}
        try:
            call.translation = await call.dialect.translate(sent)
        except ValueError as error:
            return self._failed(call, 400, str(error))
        request = self._seeded(call, call.translation.request)
        if request is not fields:
            call.request_body = to_json(request)
        call.sampling_json = sampling_of_request(request)
        call.requested_extras = _requested_extras(request, call.dialect.endpoint, gives_ids=self._gives_ids)
        call.choices_wanted = _choices_wanted(request)
        model = self._settings.llm_model if call.dialect.is_sampled and call.release is None else None
        call.upstream_request = request | {"model": model} if model else request
        try:
            return await self._candidates_answer(call) or await self._answer_of_model(call)
        except UpstreamError as error:
            return self._failed(call, error.status, str(error))

    async def _answer_of_model(self, call: Call) -> Reply:
        return await self._reply(call, await self._ask_with_extras(call, call.upstream_request))

    async def _candidates_answer(self, call: Call) -> Reply | None:
        """The answer of a release's candidate. ``None`` where there is none, or it failed: the stable model is to be
        asked then, so that no call is lost by a candidate.

        Raises:
            UpstreamError: the request is refused, whichever model it is for.
        """
        release = call.release
        if release is None or release.arm != CANDIDATE:
            return None
        try:
            answer = await self._ask_with_extras(call, call.upstream_request)
            if not _is_lost(answer.status):
                return await self._reply(call, answer)
            answer.close()
            reason = f"{answer.status}: {shown(answer.body)}"
        except UpstreamError as error:
            if not _is_lost(error.status):
                raise
            reason = f"{error.status}: {error}"
        call.release = _fallen_back(release, reason)
        call.completion = Completion()
        call.upstream_request = call.upstream_request | {"model": call.release.model}
        call.request_body = to_json(from_json(call.request_body) | {"model": call.release.model})
        logger.warning("release %s: %s answered for %s", release.state.release, call.release.model, release.model)
        return None

    async def _recorded(self, call: Call, reply: Reply) -> Reply:
        """Make the call durable; the reply may go out now. Without Kafka it is an error reply instead."""
        call.http_status = reply.status
        try:
            await self._recorder.record(call)
        except LightstreamError as error:
            message = f"the call could not be recorded, so its answer is withheld: {error}"
            return error_reply(call.dialect, 413 if isinstance(error, RecordTooLargeError) else 503, message)
        return reply

    async def models(self, dialect: Dialect, name: str = "") -> Reply:
        """The releases and the upstream's list of models, or the description of one."""
        releases: list[str] = []
        if self._releases is not None:
            await self._releases.known()
            releases = self._releases.names
        if name in releases:
            return Reply(200, to_json(entry_of(name)))
        try:
            answer = await self._upstream.models(name)
        except UpstreamError as error:
            return error_reply(dialect, error.status, str(error))
        listed = with_releases(answer.body or b"", releases) if releases and answer.status == 200 and not name else None
        if listed is not None:
            return Reply(200, to_json(listed))
        return Reply(answer.status, answer.body or b"", content_type=answer.content_type)

    def _seeded(self, call: Call, request: dict[str, Any]) -> dict[str, Any]:
        """The request, with a seed if its run has one and it has none of its own."""
        if call.run_seed is None or not call.dialect.is_sampled or request.get("seed") is not None:
            return request
        call.drawn_seed = self._seeds.draw(call.run_seed, call.caller, request, is_retry=call.resend_count > 0)
        return request if call.drawn_seed is None else request | {"seed": call.drawn_seed.value}

    def _give_seed_back(self, call: Call) -> None:
        if call.drawn_seed is not None:
            self._seeds.give_back(call.drawn_seed)

    async def _ask_with_extras(self, call: Call, request: dict[str, Any]) -> UpstreamAnswer:
        """Ask for token ids and log-probabilities too, as far as the model server gives them."""

        async def ask(whole: dict[str, Any]) -> UpstreamAnswer:
            began_s, status = time.perf_counter(), 0
            try:
                answer = await self._upstream.ask(call.dialect.endpoint, whole, streams=call.streams)
                status = answer.status
            except UpstreamError as error:
                status = error.status
                raise
            finally:
                call.upstream_s += time.perf_counter() - began_s
                UPSTREAM_ANSWERS.labels(status or CLIENT_GONE).inc()
            return answer

        answer, call.not_asked_for = await self._extras.ask(ask, call.dialect.endpoint, request, streams=call.streams)
        return answer

    async def _rest(self, call: Call, completion: Completion) -> UpstreamAnswer:
        """The answer to the request for the rest of an interrupted one, whose first part is ``completion``.

        Raises:
            UpstreamError: there is none.
        """
        request = going_on(call.upstream_request, completion, call.choices_wanted)
        answer = await self._ask_with_extras(call, request)
        if answer.status != 200 or (answer.pieces is None) is call.streams:
            message = (
                f"the LLM server interrupted the answer for new weights, and does not go on with it: {answer.status} "
            )
            raise UpstreamError(message + shown(answer.body), status=502)
        return answer

    async def _reply(self, call: Call, answer: UpstreamAnswer) -> Reply:
        headers = {name: answer.headers[name] for name in PASSED_ON_HEADERS if name in answer.headers}
        call.resources_id = answer.headers.get(RESOURCES_ID_HEADER)
        version = answer.headers.get(POLICY_VERSION_HEADER)
        call.policy_version = policy_version_of(version, None)
        call.sampling_json = sampling_of_request({**answer.defaults, **call.upstream_request})
        reply = Reply(answer.status, answer.body or b"", headers, answer.content_type)
        if answer.status != 200:
            call.error_message = f"the LLM server answered {answer.status}: {shown(answer.body)}"
            reply.body = call.dialect.passed_on_error(answer.status, reply.body)
        elif answer.pieces is not None:
            reply.stream = answer
        elif call.streams and call.dialect.is_sampled:
            reply.stream, reply.content_type = _streamed(answer), EVENT_STREAM
        else:
            await self._read_whole(call, reply, version)
        return reply

    async def _read_whole(self, call: Call, reply: Reply, version: str | None) -> None:
        if not call.dialect.is_sampled:
            capture(call.completion, json_answer_in(reply.body))
            return
        body = completion_in(reply.body)
        capture(call.completion, body, is_whole=True)
        while call.completion.is_interrupted:
            rest = await self._rest(call, call.completion)
            body = joined(body, completion_in(rest.body or b""))
            call.completion = Completion()
            capture(call.completion, body, is_whole=True)
        call.policy_version = policy_version_of(version, call.completion.model)
        without_extras(body, call.requested_extras)
        if self._gives_ids:
            with_provider_fields(body)
        assert call.translation is not None, "the request was translated"  # noqa: S101  # our own order of steps
        translated = call.translation.whole(call.completion, body)
        call.seen_response_id = call.translation.response_id
        reply.body = to_json(translated)

    def _failed(self, call: Call, status: int, message: str) -> Reply:
        call.error_message = message
        return error_reply(call.dialect, status, message)


def _streamed(answer: UpstreamAnswer) -> UpstreamAnswer:
    """The answer of a server that does not stream, as a stream.

    Raises:
        UpstreamError: it is no answer.
    """
    events = as_stream(completion_in(answer.body or b""))

    async def pieces() -> AsyncGenerator[bytes]:
        for event in events:
            yield event

    return UpstreamAnswer(200, answer.headers, EVENT_STREAM, pieces=pieces(), close=answer.close)


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


def _is_lost(status: int) -> bool:
    """Whether a candidate that answers so is no answer: its server does not know it, does not let us in, or failed."""
    return status in LOST or status >= HTTPStatus.INTERNAL_SERVER_ERROR


def _fallen_back(release: Routed, reason: str) -> Routed:
    return replace(release, fallback=reason[:FALLBACK_CHARS_MAX])


def _resend_count(header: str) -> int:
    """How many times the client made the request before; 0 where it does not say so in digits."""
    return int(header) if header.isascii() and header.isdigit() and len(header) < 10 else 0


def _requested_extras(request: dict[str, Any], endpoint: Endpoint, *, gives_ids: bool) -> RequestedExtras:
    logprobs = request.get("logprobs")
    asks = logprobs is True if endpoint == "chat/completions" else logprobs is not None
    return RequestedExtras(logprobs=asks, token_ids=gives_ids or request.get("return_token_ids") is True)


def _choices_wanted(request: dict[str, Any]) -> int:
    """``n`` for each prompt: a list of texts or of lists of token ids is several prompts."""
    n = request.get("n")
    prompt = request.get("prompt")
    several = isinstance(prompt, list) and bool(prompt) and not isinstance(prompt[0], int)
    return (n if type(n) is int and n > 0 else 1) * (len(prompt) if isinstance(prompt, list) and several else 1)
