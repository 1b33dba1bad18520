"""Shared parts of LiteLLM's translation of requests for both interfaces; imported at the first call."""

from __future__ import annotations

from typing import Any

from ..json_text import read_json
from ..server_answers import error_in, shown

PROVIDER = "openai"
"""The model server's provider, to LiteLLM: one that speaks OpenAI's chat completions."""

NOT_FOR_SERVERS = ("custom_llm_provider", "extra_headers", "reasoning_summary", "context_management")
"""Keys that LiteLLM puts into a chat request for itself."""


def translation_errors() -> tuple[type[Exception], ...]:
    """Errors of LiteLLM's translators for bodies of a shape they do not know; few are classes of its own."""
    import openai  # LiteLLM's errors derive from this package's

    return (ValueError, TypeError, LookupError, AttributeError, AssertionError, openai.OpenAIError)


def chat_request(translated: dict[str, Any]) -> dict[str, Any]:
    """LiteLLM's chat request as a model server takes it: without LiteLLM's own fields and empty ones.

    Raises:
        ValueError: a message holds the result of a call that no message before it makes.
    """
    request = {name: value for name, value in translated.items() if value is not None and name not in NOT_FOR_SERVERS}
    request["messages"] = [
        {name: value for name, value in dict(message).items() if value is not None or name == "content"}
        for message in request.get("messages", [])
    ]
    _refuse_orphans(request["messages"])
    if request.get("stream") is True:
        request["stream_options"] = {"include_usage": True}  # the end of a translated stream has the usage
    return request


def error_message_of(body: bytes) -> str:
    """The message in the error body of an OpenAI-compatible server."""
    try:
        decoded: Any = read_json(body)
    except ValueError:
        decoded = None
    if isinstance(decoded, dict):
        error = error_in(decoded)
        message = decoded.get("message") if error is None else error[1]
        if isinstance(message, str) and message:
            return message
    return shown(body) or "the LLM server gave no reason"


def _refuse_orphans(messages: list[dict[str, Any]]) -> None:
    call_ids: set[Any] = set()
    for message in messages:
        calls = message.get("tool_calls")
        call_ids |= {call.get("id") for call in calls if isinstance(call, dict)} if isinstance(calls, list) else set()
        call_id = message.get("tool_call_id")
        if message.get("role") == "tool" and call_id not in call_ids:
            raise ValueError(f"there is a result of the tool call {call_id!r}, but not the call; send both, or neither")
