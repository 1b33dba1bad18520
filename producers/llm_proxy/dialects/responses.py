"""OpenAI's responses over a chat server; requests are translated by LiteLLM.

https://platform.openai.com/docs/api-reference/responses and …/responses-streaming. A request may go on from an earlier
response by its id, as long as the proxy remembers that; other things that OpenAI's servers keep are refused."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json

from ..capture import Completion
from ..events import event_of
from ..litellm_upstream import imported_litellm
from ..tool_calls import ToolCall
from .dialect import Endpoint, StreamEvent, Translation, proxy_error
from .litellm_shapes import PROVIDER, chat_request, error_message_of, translation_errors
from .response_items import as_functions, function_items, is_client_tool, item_of_client_tool
from .response_writer import ResponseWriter

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
        """Remember a turn: the items of its input, then the items of its output."""
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
        visited: set[str] = set()  # a model server may repeat its ids
        while following is not None:
            turn = None if following in visited else self._turns.get(following)
            visited.add(following)
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

ECHOED = (
    "instructions",
    "max_output_tokens",
    "metadata",
    "parallel_tool_calls",
    "reasoning",
    "store",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_p",
    "truncation",
    "user",
)
"""Parameters that a response repeats."""

DEFAULTS: dict[str, Any] = {"metadata": {}, "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}


class ResponsesDialect:
    """``/v1/responses``, with the conversations of one proxy."""

    api = "responses"
    endpoint: Endpoint = "chat/completions"
    is_sampled = True

    def __init__(self) -> None:
        self._conversations = Conversations()

    async def translate(self, request: dict[str, Any]) -> Translation:
        await asyncio.to_thread(imported_litellm)
        return _ResponsesCall(request, self._conversations)

    def error(self, status: int, message: str) -> dict[str, Any]:
        return proxy_error(status, message)

    def error_event(self, status: int, message: str) -> bytes:
        # Clients read either the fields of the documented event or `error`, as in every other stream of OpenAI's.
        event = {"type": "error", "code": None, "message": message, "param": None, "sequence_number": 0}
        return event_of(to_json(event | proxy_error(status, message)), name="error")

    def passed_on_error(self, status: int, body: bytes) -> bytes:
        return to_json(proxy_error(status, error_message_of(body)))


class _ResponsesCall:
    def __init__(self, request: Any, conversations: Conversations) -> None:
        from litellm.responses.litellm_completion_transformation import custom_tools
        from litellm.responses.litellm_completion_transformation.transformation import LiteLLMCompletionResponsesConfig

        config: Any = LiteLLMCompletionResponsesConfig
        self._model = str(request.get("model") or "")
        self.response_id: str | None = None
        _refuse_unanswerable(request)
        self._conversations = conversations
        self._previous: str | None = request.get("previous_response_id")
        turn = request["input"]
        self._added: list[Any] = [{"role": "user", "content": turn}] if isinstance(turn, str) else turn
        before = [] if self._previous is None else conversations.until(self._previous)
        self._request: dict[str, Any] = request
        offered: Any = request.get("tools")
        self._client_tools = {
            tool["type"] for tool in (offered if isinstance(offered, list) else ()) if is_client_tool(tool)
        }
        tools = as_functions(offered)
        items = function_items([*before, *self._added])
        try:
            self._custom_names: set[str] = custom_tools.extract_custom_tool_names(tools)
            self._namespaces: Any = config.namespace_tool_name_map(tools)
            translated: dict[str, Any] = config.transform_responses_api_request_to_chat_completion_request(
                model=self._model,
                input=items,
                responses_api_request=request | {"previous_response_id": None, "input": items, "tools": tools},
                custom_llm_provider=PROVIDER,
                stream=request.get("stream"),
            )
        except translation_errors() as error:
            raise ValueError(f"the request cannot be translated: {type(error).__name__}: {error}") from error
        self.request: dict[str, Any] = chat_request(translated)

    def _writer(self, answer: Completion) -> ResponseWriter:
        self.response_id = f"resp_{secrets.token_hex(16)}"
        echoed = DEFAULTS | {name: self._request[name] for name in ECHOED if self._request.get(name) is not None}
        fields = {
            "id": self.response_id,
            "object": "response",
            "created_at": int(time.time()),
            "model": answer.model or self._model,
            "error": None,
            "incomplete_details": None,
            "previous_response_id": self._previous,
        }
        return ResponseWriter(fields | echoed, self._item_of)

    def _item_of(self, call: ToolCall) -> dict[str, Any]:
        """The item of a call, by the tool that the agent offered under that name."""
        from litellm.responses.litellm_completion_transformation.custom_tools import unwrap_custom_tool_arguments

        item = item_of_client_tool(call) if call.name in self._client_tools else None
        if item is not None:
            return item
        if call.name in self._custom_names:
            unwrapped = unwrap_custom_tool_arguments(call.arguments)
            return {"type": "custom_tool_call", "call_id": call.id, "name": call.name, "input": unwrapped}
        namespace, name = self._namespaces.get(call.name, (None, call.name))
        item = {"type": "function_call", "call_id": call.id, "name": name, "arguments": call.arguments}
        return item | ({"namespace": namespace} if namespace else {})

    def whole(self, answer: Completion, body: dict[str, Any]) -> dict[str, Any]:
        writer = self._writer(answer)
        for part in answer.first.message.parts:
            writer.write(part)
        writer.end(answer.first, answer.usage)
        self._keep(writer.response)
        return writer.response

    def _keep(self, response: dict[str, Any]) -> None:
        """Remember the turn, for requests that go on from it, unless the agent does not want that."""
        if self._request.get("store") is not False:
            self._conversations.keep(response["id"], self._previous, [*self._added, *response["output"]])

    async def stream(self, answer: Completion, events: AsyncIterator[StreamEvent]) -> AsyncGenerator[bytes]:
        numbers = itertools.count()
        writer: ResponseWriter | None = None
        async for event in events:
            if event.is_comment:
                continue
            if writer is None:
                writer = self._writer(answer)
                for written in writer.begin():
                    yield _event(written, next(numbers))
            for part in event.parts:
                for written in writer.write(part):
                    yield _event(written, next(numbers))
        writer = writer or self._writer(answer)
        written_last = writer.end(answer.first, answer.usage)
        self._keep(writer.response)
        for written in written_last:
            yield _event(written, next(numbers))


def _event(event: dict[str, Any], number: int) -> bytes:
    return event_of(to_json(event | {"sequence_number": number}), name=event["type"])


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
