"""Vercel's AI SDK: ``ai.prompt.messages``, ``ai.prompt.tools`` and ``ai.response.*``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightstream.schemas.records import SpanRecord

from ..dialects import is_list, is_map, parse_json
from ._content import content_of
from ._conversation import Conversation, Message, as_text, function_tools, tool_call

__all__ = ["read_vercel"]

_ASKED, _TOOLS = "ai.prompt.messages", "ai.prompt.tools"
_TEXTS = ("ai.response.text", "ai.response.object")
_CALLS = "ai.response.toolCalls"


def read_vercel(span: SpanRecord) -> Conversation | None:
    """What a request to the model says; the structured answer of ``generateObject`` is its text."""
    at = span.attributes
    if not any(name in at for name in (_ASKED, *_TEXTS, _CALLS)):
        return None
    found = Conversation("vercel", tools=function_tools(at.get(_TOOLS)))
    asked = parse_json(at.get(_ASKED))
    for value in asked if is_list(asked) else ():
        if is_map(value) and isinstance(value.get("role"), str):
            found.messages += _messages(value["role"], value.get("content", ""))
    text = next((as_text(at[name]) for name in _TEXTS if at.get(name)), "")
    called = parse_json(at.get(_CALLS))
    calls = [_call(call) for call in called if is_map(call)] if is_list(called) else []
    if text or calls:
        found.answer = [_assistant(text, calls)]
    return found


def _messages(role: str, content: object) -> list[Message]:
    """A message, or one for each tool result it holds."""
    parts = [part for part in content if is_map(part)] if is_list(content) else []
    if role == "tool":
        return [_result(part) for part in parts if part.get("type") == "tool-result"]
    calls = [_call(part) for part in parts if part.get("type") == "tool-call"]
    said = content_of(content)
    return [_assistant(said, calls)] if calls else [{"role": role, "content": said}]


def _assistant(content: object, calls: list[dict[str, Any]]) -> Message:
    message: Message = {"role": "assistant", "content": content}
    return message if not calls else {**message, "content": content or None, "tool_calls": calls}


def _call(part: Mapping[str, Any]) -> dict[str, Any]:
    return tool_call(part.get("toolCallId"), part.get("toolName"), part.get("args", part.get("input")))


def _result(part: Mapping[str, Any]) -> Message:
    """``result`` up to version 4, then ``output``, which tells its kind."""
    output = part.get("output")
    result = output.get("value", "") if is_map(output) else part.get("result", output)
    return {"role": "tool", "content": as_text(result), "tool_call_id": str(part.get("toolCallId") or "")}
