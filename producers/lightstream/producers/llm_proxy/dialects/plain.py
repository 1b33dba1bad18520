"""OpenAI's chat completions and completions: what the model server speaks itself, passed through as it is."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json

from ..events import event_of
from .dialect import Endpoint, StreamEvent, Translation

__all__ = ["CHAT", "COMPLETIONS", "PlainDialect", "openai_error"]


@dataclass(frozen=True, slots=True)
class _AsItIs:
    request: dict[str, Any]
    response_id: str | None = None

    def whole(self, body: dict[str, Any]) -> dict[str, Any]:
        return body

    async def stream(self, events: AsyncIterator[StreamEvent]) -> AsyncGenerator[bytes]:
        async for event in events:
            yield event.data


@dataclass(frozen=True, slots=True)
class PlainDialect:
    """A dialect that needs no translation."""

    api: str
    endpoint: Endpoint

    async def translate(self, request: dict[str, Any]) -> Translation:
        return _AsItIs(request)

    def error(self, status: int, message: str) -> dict[str, Any]:
        return openai_error(status, message)

    def error_event(self, status: int, message: str) -> bytes:
        return event_of(to_json(openai_error(status, message)))

    def passed_on_error(self, status: int, body: bytes) -> bytes:
        return body


def openai_error(status: int, message: str) -> dict[str, Any]:
    """An error in OpenAI's shape."""
    code = "invalid_api_key" if status == 401 else None
    return {"error": {"message": message, "type": "lightstream_proxy", "param": None, "code": code}}


CHAT = PlainDialect("chat", "chat/completions")
COMPLETIONS = PlainDialect("text_completion", "completions")
