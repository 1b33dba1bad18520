"""Parts of LiteLLM that both translated dialects need; imported at the first call that needs it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from pydantic_core import from_json

from ..upstream import UpstreamError
from .dialect import StreamEvent

__all__ = [
    "PROVIDER",
    "ChunkStream",
    "chat_answer",
    "chat_request",
    "error_message_of",
    "untranslatable",
]

PROVIDER = "openai"
"""The model server's provider, to LiteLLM: one that speaks OpenAI's chat completions."""

NOT_FOR_SERVERS = ("custom_llm_provider", "extra_headers", "reasoning_summary", "context_management")
"""Keys that LiteLLM puts into a chat request for itself."""

NO_USAGE = {"usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}}

ERROR_TEXT_MAX = 2000
"""Characters of an error that is not JSON."""


class ChunkStream:
    """The model server's chunks as LiteLLM's translators read them; ends at the first that has another shape.

    Chunks that bring token ids alone (half a character, say, which servers send because ids were asked for) are left
    out: the translator to Anthropic's messages takes one amid a tool's arguments for the end of that tool call.

    Attributes:
        logging_obj: LiteLLM's translators look for it; there is no log of LiteLLM's here.
        failure: what was wrong with that chunk. It is not raised, as the translators take every error for an end.
    """

    logging_obj: Any = None

    def __init__(self, events: AsyncIterator[StreamEvent]) -> None:
        self._events = events
        self.failure: UpstreamError | None = None

    def __aiter__(self) -> ChunkStream:
        return self

    async def __anext__(self) -> Any:
        from litellm.types.utils import ModelResponseStream

        while True:
            event = await anext(self._events)
            if event.body is None or _says_nothing(event.body):
                continue
            try:
                return ModelResponseStream(**event.body)
            except translation_errors() as error:
                self.failure = untranslatable(error)
                raise StopAsyncIteration from error


def _says_nothing(body: dict[str, Any]) -> bool:
    choices: Any = body.get("choices")
    if not isinstance(choices, list) or not choices or body.get("usage"):
        return False
    return all(
        isinstance(choice, dict)
        and choice.get("finish_reason") is None
        and isinstance(choice.get("delta"), dict)
        and not any(choice["delta"].values())
        for choice in choices
    )


def translation_errors() -> tuple[type[Exception], ...]:
    """Errors of LiteLLM's translators for bodies of a shape they do not know; few are classes of its own."""
    import openai  # LiteLLM's errors derive from this package's

    return (ValueError, TypeError, LookupError, AttributeError, AssertionError, openai.OpenAIError)


def chat_request(translated: dict[str, Any]) -> dict[str, Any]:
    """LiteLLM's chat request as a model server takes it: without LiteLLM's own fields and empty ones."""
    request = {name: value for name, value in translated.items() if value is not None and name not in NOT_FOR_SERVERS}
    request["messages"] = [
        {name: value for name, value in dict(message).items() if value is not None or name == "content"}
        for message in request.get("messages", [])
    ]
    if request.get("stream") is True:
        request["stream_options"] = {"include_usage": True}  # the end of a translated stream has the usage
    return request


def chat_answer(body: dict[str, Any]) -> Any:
    """A whole chat answer as LiteLLM's translators read it.

    They need a usage, and so do the agents' dialects: zeros stand in where a server reports none.
    """
    from litellm.types.utils import ModelResponse

    return ModelResponse(**(NO_USAGE | body))


def untranslatable(error: Exception) -> UpstreamError:
    """The model server's answer has a shape that the agent's dialect has no words for."""
    return UpstreamError(
        f"the LLM server's answer could not be translated: {type(error).__name__}: {error}", status=502
    )


def error_message_of(body: bytes) -> str:
    """The message in the error body of an OpenAI-compatible server."""
    try:
        decoded: Any = from_json(body)
    except ValueError:
        decoded = None
    if isinstance(decoded, dict):
        inner = decoded.get("error")
        for message in (inner.get("message") if isinstance(inner, dict) else inner, decoded.get("message")):
            if isinstance(message, str) and message:
                return message
    return body[:ERROR_TEXT_MAX].decode("utf-8", errors="replace") or "the LLM server gave no reason"
