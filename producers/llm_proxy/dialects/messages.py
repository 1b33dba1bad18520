"""Anthropic's messages over a chat server; requests are translated by LiteLLM.

https://docs.anthropic.com/en/api/messages and …/messages-streaming; errors: …/errors.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from pydantic_core import to_json

from ..capture import Completion
from ..events import event_of
from ..litellm_upstream import imported_litellm
from .dialect import Endpoint, StreamEvent, Translation
from .litellm_shapes import PROVIDER, chat_request, error_message_of, translation_errors
from .message_writer import MessageWriter

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
    is_sampled = True

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

        adapter: Any = AnthropicAdapter()
        self._model = str(request.get("model") or "")
        self.response_id: str | None = None
        _refuse_malformed(request)
        try:
            translated: Any
            translated, self._tool_names = adapter.translate_completion_input_params_with_tool_mapping(
                dict(request), custom_llm_provider=PROVIDER
            )
        except translation_errors() as error:
            raise ValueError(f"the request cannot be translated: {type(error).__name__}: {error}") from error
        self.request: dict[str, Any] = chat_request(dict(translated))
        stops: Any = request.get("stop_sequences")
        self._stop_sequences = [stop for stop in stops if isinstance(stop, str)] if isinstance(stops, list) else []

    def _writer(self, answer: Completion) -> MessageWriter:
        self.response_id = f"msg_{secrets.token_hex(16)}"
        return MessageWriter(self.response_id, answer.model or self._model, self._stop_sequences, self._tool_names)

    def whole(self, answer: Completion, body: dict[str, Any]) -> dict[str, Any]:
        writer = self._writer(answer)
        for part in answer.first.message.parts:
            writer.write(part)
        writer.end(answer.first, answer.usage)
        return writer.message

    async def stream(self, answer: Completion, events: AsyncIterator[StreamEvent]) -> AsyncGenerator[bytes]:
        writer: MessageWriter | None = None
        async for event in events:
            if event.is_comment:
                continue
            if writer is None:
                writer = self._writer(answer)
                for written in writer.begin():
                    yield _event(written)
            for part in event.parts:
                for written in writer.write(part):
                    yield _event(written)
        writer = writer or self._writer(answer)
        for written in writer.end(answer.first, answer.usage):
            yield _event(written)


def _event(event: dict[str, Any]) -> bytes:
    return event_of(to_json(event), name=event["type"])


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
