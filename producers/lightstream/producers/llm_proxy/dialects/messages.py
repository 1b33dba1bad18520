"""Anthropic's messages over a chat server, translated by LiteLLM.

https://docs.anthropic.com/en/api/messages and …/messages-streaming; errors: …/errors.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from pydantic_core import from_json, to_json

from ..events import event_of
from ..litellm_upstream import imported_litellm
from .dialect import Endpoint, StreamEvent, Translation
from .litellm_shapes import (
    PROVIDER,
    ChunkStream,
    chat_answer,
    chat_request,
    error_message_of,
    translation_errors,
    untranslatable,
)

__all__ = ["ANTHROPIC_MESSAGES", "MessagesDialect", "counted_tokens"]

ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class MessagesDialect:
    """``/v1/messages``."""

    api = "messages"
    endpoint: Endpoint = "chat/completions"

    async def translate(self, request: dict[str, Any]) -> Translation:
        await asyncio.to_thread(imported_litellm)
        return _MessagesCall(request)

    def error(self, status: int, message: str) -> dict[str, Any]:
        return {"type": "error", "error": {"type": ERROR_TYPES.get(status, "api_error"), "message": message}}

    def error_event(self, status: int, message: str) -> bytes:
        return event_of(to_json(self.error(status, message)), name="error")

    def passed_on_error(self, status: int, body: bytes) -> bytes:
        return to_json(self.error(status, error_message_of(body)))


ANTHROPIC_MESSAGES = MessagesDialect()

UNREADABLE_ARGUMENTS = "unreadable_arguments"
"""A tool's arguments where the model's are not a JSON object: their text, under this name. A message has
no words for them, and a call that failed for it would not be trained on."""


async def counted_tokens(request: dict[str, Any]) -> int:
    """About how many tokens the prompt has, by LiteLLM's counter: the model server's tokenizer is not asked.

    Raises:
        ValueError: the request cannot be translated.
    """
    litellm = await asyncio.to_thread(imported_litellm)
    chat = _MessagesCall(request | {"max_tokens": 1}).request
    try:
        counted: int = await asyncio.to_thread(
            litellm.token_counter, model=chat["model"], messages=chat["messages"], tools=chat.get("tools")
        )
    except translation_errors() as error:
        raise ValueError(f"the tokens cannot be counted: {type(error).__name__}: {error}") from error
    return counted


class _MessagesCall:
    def __init__(self, request: dict[str, Any]) -> None:
        from litellm.llms.anthropic.pass_through.adapters.transformation import AnthropicAdapter

        self._adapter: Any = AnthropicAdapter()
        self._model = str(request.get("model") or "")
        self.response_id: str | None = None
        _refuse_malformed(request)
        try:
            translated: Any
            translated, self._tool_names = self._adapter.translate_completion_input_params_with_tool_mapping(
                dict(request), custom_llm_provider=PROVIDER
            )
        except translation_errors() as error:
            raise ValueError(f"the request cannot be translated: {type(error).__name__}: {error}") from error
        self.request: dict[str, Any] = chat_request(dict(translated))

    def whole(self, body: dict[str, Any]) -> dict[str, Any]:
        try:
            answer = self._adapter.translate_completion_output_params(
                chat_answer(_with_objects_as_arguments(body)), tool_name_mapping=self._tool_names
            )
        except translation_errors() as error:
            raise untranslatable(error) from error
        return dict(answer)

    async def stream(self, events: AsyncIterator[StreamEvent]) -> AsyncGenerator[bytes]:
        from litellm.llms.anthropic.pass_through.adapters.streaming_iterator import AnthropicStreamWrapper

        chunks: Any = ChunkStream(events)
        translated: Any = AnthropicStreamWrapper(
            completion_stream=chunks, model=self._model, tool_name_mapping=self._tool_names
        )
        try:
            async for event in translated:
                if chunks.failure is not None:
                    raise chunks.failure
                if event["type"] == "message_start":
                    self.response_id = event["message"]["id"]
                yield event_of(to_json(event), name=event["type"])
            if chunks.failure is not None:
                raise chunks.failure
        except translation_errors() as error:
            raise untranslatable(error) from error


def _with_objects_as_arguments(body: dict[str, Any]) -> dict[str, Any]:
    """The answer, or a copy where arguments had to be replaced: what is recorded is what the model said."""
    choices: Any = body.get("choices")
    return body | {"choices": [_choice_with_objects(choice) for choice in choices]}


def _choice_with_objects(choice: Any) -> Any:
    if not isinstance(choice, dict) or not isinstance(choice.get("message"), dict):
        return choice
    message: dict[str, Any] = choice["message"]
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return choice
    return choice | {"message": message | {"tool_calls": [_call_with_object(call) for call in calls]}}


def _call_with_object(call: Any) -> Any:
    if not isinstance(call, dict) or not isinstance(call.get("function"), dict):
        return call
    function: dict[str, Any] = call["function"]
    text = function.get("arguments")
    if not isinstance(text, str) or not text:
        return call
    try:
        arguments = from_json(text)
    except ValueError:
        arguments = None
    if isinstance(arguments, dict):
        return call
    return call | {"function": function | {"arguments": to_json({UNREADABLE_ARGUMENTS: text}).decode()}}


def _refuse_malformed(request: dict[str, Any]) -> None:
    """Fill in the fields that LiteLLM's translator takes for granted."""
    if not isinstance(request.get("model"), str) or not request["model"]:
        raise ValueError("model must be a string")
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ValueError("messages must be a list with at least one message")
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") not in ("user", "assistant", "system"):
            raise ValueError(f"messages[{index}] must be an object whose role is user, assistant or system")
    if type(request.get("max_tokens")) is not int:
        raise ValueError("max_tokens must be an integer")
