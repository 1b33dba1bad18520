"""One chat request through the proxy: ask, capture, record, and only then answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json, to_json

from lightstream.schemas.clock import Clock
from lightstream.schemas.errors import LightstreamError
from lightstream.schemas.settings import Settings

from .call import Call
from .capture import Wanted, capture, policy_version_of, without_extras
from .recorder import CallRecorder
from .upstream import Upstream, UpstreamAnswer, UpstreamError

__all__ = ["Exchange", "Reply", "error_reply"]

POLICY_VERSION_HEADER = "x-lightstream-policy-version"
RESOURCES_ID_HEADER = "x-lightstream-resources-id"
PASSED_ON_HEADERS = (POLICY_VERSION_HEADER, RESOURCES_ID_HEADER, "x-request-id", "retry-after")

ERROR_TEXT_MAX = 2000
"""Characters of an upstream's error that go into the record."""

RETRY_AFTER_S = 1


@dataclass(slots=True)
class Reply:
    """What the agent gets; ``stream`` is set instead of ``body`` for a streamed answer."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    content_type: str = "application/json"
    stream: UpstreamAnswer | None = None


class Exchange:
    """Handles one request after the other for any number of agents at once."""

    def __init__(self, settings: Settings, upstream: Upstream, recorder: CallRecorder, clock: Clock) -> None:
        self._settings = settings
        self._upstream = upstream
        self._recorder = recorder
        self._clock = clock
        self._extras_refused = False

    @property
    def recorder(self) -> CallRecorder:
        """Where calls are written."""
        return self._recorder

    async def ask(self, call: Call, body: bytes) -> tuple[Reply, Wanted]:
        """Forward ``body`` and read the answer into ``call``; nothing is recorded yet.

        A streamed answer is only begun: its pieces are still to come.
        """
        call.started_unix_nano = self._clock.now_unix_nano()
        call.request_body = body
        try:
            request: Any = from_json(body)
        except ValueError as error:
            return self._failed(call, 400, f"the request is not JSON: {error}"), Wanted(True, True)
        if not isinstance(request, dict):
            return self._failed(call, 400, "the request is not a JSON object"), Wanted(True, True)
        wanted = Wanted(request.get("logprobs") is True, request.get("return_token_ids") is True)
        call.requested_model = str(request.get("model") or "")
        call.streams = request.get("stream") is True
        n = request.get("n")
        call.choices_wanted = n if isinstance(n, int) and n > 0 else 1
        if self._settings.llm_model:
            request["model"] = self._settings.llm_model
        try:
            answer = await self._ask_with_extras(request, call.streams)
        except UpstreamError as error:
            return self._failed(call, error.status, str(error)), wanted
        return self._reply(call, answer, wanted), wanted

    async def record(self, call: Call, reply: Reply) -> Reply:
        """Make the call durable; the reply may go out now. Without Kafka it is an error reply instead."""
        call.http_status = reply.status
        try:
            await self._recorder.record(call)
        except LightstreamError as error:
            return error_reply(503, f"the call could not be recorded, so its answer is withheld: {error}")
        return reply

    def abandoned(self, call: Call) -> None:
        """The client has gone: write the call, without waiting."""
        call.http_status = 499
        call.error_message = call.error_message or "the client disconnected before it had the answer"
        self._recorder.record_soon(call)

    async def models(self) -> Reply:
        """The upstream's list of models."""
        try:
            answer = await self._upstream.models()
        except UpstreamError as error:
            return error_reply(error.status, str(error))
        return Reply(answer.status, answer.body or b"", content_type=answer.content_type)

    async def _ask_with_extras(self, request: dict[str, Any], streams: bool) -> UpstreamAnswer:
        """Ask for token ids and log-probabilities too; from a server that refuses those, without them from now on."""
        if not self._extras_refused:
            answer = await self._upstream.chat(request | {"logprobs": True, "return_token_ids": True}, streams=streams)
            if answer.status not in (400, 422) or not _names_extras(answer.body):
                return answer
        plain = await self._upstream.chat(request, streams=streams)
        self._extras_refused = self._extras_refused or plain.status == 200
        return plain

    def _reply(self, call: Call, answer: UpstreamAnswer, wanted: Wanted) -> Reply:
        headers = {name: answer.headers[name] for name in PASSED_ON_HEADERS if name in answer.headers}
        call.resources_id = answer.headers.get(RESOURCES_ID_HEADER)
        version = answer.headers.get(POLICY_VERSION_HEADER)
        call.policy_version = policy_version_of(version, None)
        reply = Reply(answer.status, answer.body or b"", headers, answer.content_type)
        if answer.status != 200:
            call.error_message = f"the LLM server answered {answer.status}: {_shown(answer.body)}"
        elif answer.pieces is not None:
            reply.stream = answer
        else:
            self._read_whole(call, reply, wanted, version)
        return reply

    def _read_whole(self, call: Call, reply: Reply, wanted: Wanted, version: str | None) -> None:
        try:
            body: Any = from_json(reply.body)
        except ValueError:
            body = None
        if not isinstance(body, dict) or not isinstance(body.get("choices"), list):
            call.error_message = f"the LLM server's answer is no chat completion: {_shown(reply.body)}"
            reply.status, reply.body = 502, _error_body(call.error_message)
            reply.content_type = "application/json"
            return
        capture(call.answer, body)
        call.policy_version = policy_version_of(version, call.answer.model)
        if not wanted.everything:
            without_extras(body, wanted)
            reply.body = to_json(body)

    def _failed(self, call: Call, status: int, message: str) -> Reply:
        call.error_message = message
        return error_reply(status, message)


def error_reply(status: int, message: str) -> Reply:
    """An error in OpenAI's shape; worth another try after a moment if it is 503."""
    headers = {"retry-after": str(RETRY_AFTER_S)} if status == 503 else {}
    return Reply(status, _error_body(message), headers)


def _error_body(message: str) -> bytes:
    return to_json({"error": {"message": message, "type": "lightstream_proxy", "param": None, "code": None}})


def _names_extras(body: bytes | None) -> bool:
    return body is not None and (b"return_token_ids" in body or b"logprobs" in body)


def _shown(body: bytes | None) -> str:
    return (body or b"")[:ERROR_TEXT_MAX].decode("utf-8", errors="replace")
