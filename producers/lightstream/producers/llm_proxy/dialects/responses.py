"""OpenAI's responses over a chat server, translated by LiteLLM.

https://platform.openai.com/docs/api-reference/responses and …/responses-streaming. A request may go on from an earlier
response by its id, as long as the proxy remembers that; other things that OpenAI's servers keep are refused."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json

from ..events import event_of
from ..litellm_upstream import imported_litellm
from .dialect import Endpoint, StreamEvent, Translation, openai_error
from .litellm_shapes import (
    PROVIDER,
    ChunkStream,
    chat_answer,
    chat_request,
    error_message_of,
    translation_errors,
    untranslatable,
)

__all__ = ["Conversations", "ResponsesDialect"]

CONVERSATIONS_BYTES_MAX = 256 * 1024 * 1024
"""25,000 turns of 10 KB; the oldest are forgotten beyond. OpenAI keeps them for 30 days; an agent needs minutes."""


@dataclass(frozen=True, slots=True)
class _Exchanged:
    previous: str | None
    items: Sequence[Any]
    size_bytes: int


class Conversations:
    """Turns by the id of their response, in memory. Each holds its own items and the id of the turn before."""

    def __init__(self, bytes_max: int = CONVERSATIONS_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._turns: OrderedDict[str, _Exchanged] = OrderedDict()

    def keep(self, response_id: str, previous: str | None, items: Sequence[Any]) -> None:
        """Remember a turn: the items of its input, then those of its output."""
        self._forget(response_id)
        turn = _Exchanged(previous, items, len(to_json(items)))
        self._turns[response_id] = turn
        self._bytes += turn.size_bytes
        while self._bytes > self._bytes_max:
            self._forget(next(iter(self._turns)))

    def until(self, response_id: str) -> list[Any]:
        """All items of the conversation up to and with that response.

        Raises:
            ValueError: it is not known, or a turn before it is not any more.
        """
        turns: list[_Exchanged] = []
        following: str | None = response_id
        seen: set[str] = set()  # a model server may repeat its ids
        while following is not None:
            turn = None if following in seen else self._turns.get(following)
            seen.add(following)
            if turn is None:
                raise ValueError(
                    f"previous_response_id {response_id!r}: response {following!r} is not known here (any more); "
                    "send the whole input"
                )
            self._turns.move_to_end(following)
            turns.append(turn)
            following = turn.previous
        return [item for turn in reversed(turns) for item in turn.items]

    def _forget(self, response_id: str) -> None:
        turn = self._turns.pop(response_id, None)
        if turn is not None:
            self._bytes -= turn.size_bytes


KEPT_ELSEWHERE = ("conversation", "prompt")
"""Parameters that name objects stored at OpenAI, which no other server has."""

ENDS = ("response.completed", "response.incomplete")
"""The last event of a stream, which carries the whole response."""


class ResponsesDialect:
    """``/v1/responses``, with the conversations of one proxy."""

    api = "responses"
    endpoint: Endpoint = "chat/completions"

    def __init__(self) -> None:
        self._conversations = Conversations()

    async def translate(self, request: dict[str, Any]) -> Translation:
        await asyncio.to_thread(imported_litellm)
        return _ResponsesCall(request, self._conversations)

    def error(self, status: int, message: str) -> dict[str, Any]:
        return openai_error(status, message)

    def error_event(self, status: int, message: str) -> bytes:
        # Clients read either the fields of the documented event or `error`, as in every other stream of OpenAI's.
        event = {"type": "error", "code": None, "message": message, "param": None, "sequence_number": 0}
        return event_of(to_json(event | openai_error(status, message)), name="error")

    def passed_on_error(self, status: int, body: bytes) -> bytes:
        return to_json(openai_error(status, error_message_of(body)))


class _ResponsesCall:
    def __init__(self, request: Any, conversations: Conversations) -> None:
        from litellm.responses.litellm_completion_transformation.transformation import LiteLLMCompletionResponsesConfig

        self._config: Any = LiteLLMCompletionResponsesConfig
        self._model = str(request.get("model") or "")
        self.response_id: str | None = None
        _refuse_unanswerable(request)
        self._conversations = conversations
        self._previous: str | None = request.get("previous_response_id")
        asked = request["input"]
        self._added: list[Any] = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
        before = [] if self._previous is None else conversations.until(self._previous)
        whole_input = {"input": [*before, *self._added]} if before else {}
        self._asked: Any = request | {"previous_response_id": None} | whole_input
        try:
            translated: dict[str, Any] = self._config.transform_responses_api_request_to_chat_completion_request(
                model=self._model,
                input=self._asked["input"],
                responses_api_request=self._asked,
                custom_llm_provider=PROVIDER,
                stream=request.get("stream"),
            )
        except translation_errors() as error:
            raise ValueError(f"the request cannot be translated: {type(error).__name__}: {error}") from error
        self.request: dict[str, Any] = chat_request(translated)

    def whole(self, body: dict[str, Any]) -> dict[str, Any]:
        try:
            answer = self._config.transform_chat_completion_response_to_responses_api_response(
                request_input=self._asked["input"],
                responses_api_request=self._asked,
                chat_completion_response=chat_answer(body),
            )
            dumped: dict[str, Any] = answer.model_dump(mode="json", exclude_none=True)
        except translation_errors() as error:
            raise untranslatable(error) from error
        self._keep(dumped)
        return dumped

    def _keep(self, response: dict[str, Any]) -> None:
        """Remember the turn, for requests that go on from it, unless the agent does not want that."""
        response_id, output = response.get("id"), response.get("output")
        if self._previous is not None:
            response["previous_response_id"] = self._previous
        if self._asked.get("store") is not False and isinstance(response_id, str) and isinstance(output, list):
            self._conversations.keep(response_id, self._previous, [*self._added, *output])

    async def stream(self, events: AsyncIterator[StreamEvent]) -> AsyncGenerator[bytes]:
        from litellm.responses.litellm_completion_transformation.streaming_iterator import (
            LiteLLMCompletionStreamingIterator,
        )

        chunks: Any = ChunkStream(events)
        translated: Any = LiteLLMCompletionStreamingIterator(
            model=self._model,
            litellm_custom_stream_wrapper=chunks,
            request_input=self._asked["input"],
            responses_api_request=self._asked,
            custom_llm_provider=PROVIDER,
        )
        number = 0
        try:
            async for event in translated:
                if chunks.failure is not None:
                    raise chunks.failure
                body: dict[str, Any] = event.model_dump(mode="json", exclude_none=True)
                if self.response_id is None and isinstance(body.get("response"), dict):
                    self.response_id = body["response"].get("id")
                if body.get("type") in ENDS and isinstance(body.get("response"), dict):
                    self._keep(body["response"])
                body["sequence_number"] = number  # LiteLLM numbers only some of its events
                number += 1
                yield event_of(to_json(body), name=str(body["type"]))
            if chunks.failure is not None:
                raise chunks.failure
        except translation_errors() as error:
            raise untranslatable(error) from error


def _refuse_unanswerable(request: dict[str, Any]) -> None:
    for name in KEPT_ELSEWHERE:
        if request.get(name) is not None:
            raise ValueError(f"{name} is not known here: only OpenAI's own servers keep it; send the whole input")
    if request.get("background"):
        raise ValueError("background=true is not supported: the proxy answers while the client waits")
    if not isinstance(request.get("previous_response_id"), (str, type(None))):
        raise ValueError("previous_response_id must be a string")
    if not isinstance(request.get("input"), (str, list)) or not request["input"]:
        raise ValueError("input must be a string or a list of items")
