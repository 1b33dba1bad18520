"""One request through the proxy: ask, capture, record, and only then answer."""

from __future__ import annotations

from typing import Any

from pydantic_core import from_json, to_json

from lightstream.schemas.clock import Clock
from lightstream.schemas.errors import LightstreamError
from lightstream.schemas.http_headers import POLICY_VERSION_HEADER, RESOURCES_ID_HEADER
from lightstream.schemas.http_server import CLIENT_GONE
from lightstream.schemas.settings import Settings

from .call import Call
from .capture import Wanted, capture, policy_version_of, without_extras
from .dialects import Dialect, Endpoint
from .recorder import CallRecorder
from .turn import Reply, Turn
from .upstream import Upstream, UpstreamAnswer, UpstreamError

__all__ = ["Exchange", "error_reply"]

PASSED_ON_HEADERS = (POLICY_VERSION_HEADER, RESOURCES_ID_HEADER, "x-request-id", "retry-after")

EXTRAS: dict[Endpoint, dict[str, Any]] = {
    "chat/completions": {"logprobs": True, "return_token_ids": True},
    "completions": {"logprobs": 1, "return_token_ids": True},  # a number there: so many alternatives
}
"""Requested in addition to what the agent asks for."""

ERROR_TEXT_MAX = 2000
"""Characters of an upstream's error that go into the record."""

RETRY_AFTER_S = 1


class Exchange:
    """Handles one request after the other for any number of agents at once."""

    def __init__(self, settings: Settings, upstream: Upstream, recorder: CallRecorder, clock: Clock) -> None:
        self._settings = settings
        self._upstream = upstream
        self._recorder = recorder
        self._clock = clock
        self._extras_refused: set[tuple[str, str]] = set()

    @property
    def recorder(self) -> CallRecorder:
        """Where calls are written."""
        return self._recorder

    @property
    def settings(self) -> Settings:
        """Limits."""
        return self._settings

    async def ask(self, turn: Turn, body: bytes) -> Reply:
        """Forward ``body`` and read the answer into ``turn.call``; nothing is recorded yet.

        A streamed answer is only begun: its pieces are still to come.
        """
        call = turn.call
        call.started_unix_nano = self._clock.now_unix_nano()
        call.request_body = body
        call.api = turn.dialect.api
        try:
            asked: Any = from_json(body)
        except ValueError as error:
            return self._failed(turn, 400, f"the request is not JSON: {error}")
        if not isinstance(asked, dict):
            return self._failed(turn, 400, "the request is not a JSON object")
        call.requested_model = str(asked.get("model") or "")
        call.streams = asked.get("stream") is True
        try:
            turn.translation = await turn.dialect.translate(asked)
        except ValueError as error:
            return self._failed(turn, 400, str(error))
        request = turn.translation.request
        if request is not asked:
            call.request_body = to_json(request)
        turn.wanted = _wanted(request, turn.dialect.endpoint)
        call.choices_wanted = _choices_wanted(request)
        if self._settings.llm_model:
            request = request | {"model": self._settings.llm_model}
        try:
            answer = await self._ask_with_extras(turn.dialect.endpoint, request, call.streams)
            return self._reply(turn, answer)
        except UpstreamError as error:
            return self._failed(turn, error.status, str(error))

    async def record(self, turn: Turn, reply: Reply) -> Reply:
        """Make the call durable; the reply may go out now. Without Kafka it is an error reply instead."""
        turn.call.http_status = reply.status
        try:
            await self._recorder.record(turn.call)
        except LightstreamError as error:
            message = f"the call could not be recorded, so its answer is withheld: {error}"
            return error_reply(turn.dialect, 503, message)
        return reply

    def abandoned(self, call: Call) -> None:
        """The client has gone: write the call, without waiting."""
        call.http_status = CLIENT_GONE
        call.error_message = call.error_message or "the client disconnected before it had the answer"
        self._recorder.record_soon(call)

    async def models(self, dialect: Dialect) -> Reply:
        """The upstream's list of models."""
        try:
            answer = await self._upstream.models()
        except UpstreamError as error:
            return error_reply(dialect, error.status, str(error))
        return Reply(answer.status, answer.body or b"", content_type=answer.content_type)

    async def _ask_with_extras(self, endpoint: Endpoint, request: dict[str, Any], streams: bool) -> UpstreamAnswer:
        """Ask for token ids and log-probabilities too; a model that refuses those, without them from now on."""
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

    def _reply(self, turn: Turn, answer: UpstreamAnswer) -> Reply:
        call = turn.call
        headers = {name: answer.headers[name] for name in PASSED_ON_HEADERS if name in answer.headers}
        call.resources_id = answer.headers.get(RESOURCES_ID_HEADER)
        version = answer.headers.get(POLICY_VERSION_HEADER)
        call.policy_version = policy_version_of(version, None)
        reply = Reply(answer.status, answer.body or b"", headers, answer.content_type)
        if answer.status != 200:
            call.error_message = f"the LLM server answered {answer.status}: {_shown(answer.body)}"
            reply.body = turn.dialect.passed_on_error(answer.status, reply.body)
        elif answer.pieces is not None:
            reply.stream = answer
        else:
            self._read_whole(turn, reply, version)
        return reply

    def _read_whole(self, turn: Turn, reply: Reply, version: str | None) -> None:
        try:
            body: Any = from_json(reply.body)
        except ValueError:
            body = None
        if not isinstance(body, dict) or not isinstance(body.get("choices"), list):
            raise UpstreamError(f"the LLM server's answer is not a completion: {_shown(reply.body)}", status=502)
        call = turn.call
        capture(call.answer, body)
        call.policy_version = policy_version_of(version, call.answer.model)
        if not turn.wanted.everything:
            without_extras(body, turn.wanted)
        assert turn.translation is not None, "the request was translated"  # noqa: S101  # our own order of steps
        translated = turn.translation.whole(body)
        if translated is not body:
            call.seen_response_id = _other_id(translated.get("id"), call)
        if translated is not body or not turn.wanted.everything:
            reply.body = to_json(translated)

    def _failed(self, turn: Turn, status: int, message: str) -> Reply:
        turn.call.error_message = message
        return error_reply(turn.dialect, status, message)


def error_reply(dialect: Dialect, status: int, message: str) -> Reply:
    """An error in the agent's dialect; worth another try after a moment if it is 503."""
    headers = {"retry-after": str(RETRY_AFTER_S)} if status == 503 else {}
    return Reply(status, to_json(dialect.error(status, message)), headers)


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
    return seen if isinstance(seen, str) and seen != call.answer.response_id else None


def _names_extras(body: bytes | None) -> bool:
    return body is not None and (b"return_token_ids" in body or b"logprobs" in body)


def _shown(body: bytes | None) -> str:
    return (body or b"")[:ERROR_TEXT_MAX].decode("utf-8", errors="replace")
