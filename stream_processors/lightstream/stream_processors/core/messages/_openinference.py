"""OpenInference: ``llm.input_messages.N.message.*`` and ``llm.output_messages.N.message.*``."""

from __future__ import annotations

from typing import Any

from lightstream.schemas.records import SpanRecord

from ..dialects import grouped, is_list, is_map
from ._conversation import Conversation, Message, function_tools, tool_call

__all__ = ["read_openinference"]


def read_openinference(span: SpanRecord) -> Conversation | None:
    """Messages with their parts and tool calls, and the tools on offer."""
    if not any(name.startswith(("llm.input_messages.", "llm.output_messages.")) for name in span.attributes):
        return None
    found = Conversation("openinference")
    found.messages = _messages(grouped(span.attributes, "llm.input_messages"))
    found.answer = _messages(grouped(span.attributes, "llm.output_messages"))
    tools = grouped(span.attributes, "llm.tools")
    if is_list(tools):
        found.tools = function_tools([_below(tool, "tool").get("json_schema") for tool in tools])
    return found


def _messages(values: object) -> list[Message]:
    return [_message(_below(value, "message")) for value in values] if is_list(values) else []


def _message(value: dict[str, Any]) -> Message:
    role = value.get("role")
    role = role if isinstance(role, str) and role else "user"
    message: Message = {"role": role, "content": value.get("content", "")}
    contents = value.get("contents")
    if is_list(contents):
        message["content"] = [part for item in contents if (part := _part(_below(item, "message_content")))]
    calls = value.get("tool_calls")
    if is_list(calls):
        message["content"] = message["content"] or None
        message["tool_calls"] = [_call(_below(call, "tool_call")) for call in calls]
    if isinstance(value.get("tool_call_id"), str):
        message["tool_call_id"] = value["tool_call_id"]
    return message


def _part(value: dict[str, Any]) -> dict[str, Any] | None:
    if isinstance(value.get("text"), str):
        return {"type": "text", "text": value["text"]}
    url = _below(_below(value, "image"), "image").get("url")
    return {"type": "image_url", "image_url": {"url": url}} if isinstance(url, str) else None


def _call(value: dict[str, Any]) -> dict[str, Any]:
    function = _below(value, "function")
    return tool_call(value.get("id"), function.get("name"), function.get("arguments"))


def _below(value: object, name: str) -> dict[str, Any]:
    """The mapping at ``name``; empty where there is none."""
    inner = value.get(name) if is_map(value) else None
    return dict(inner) if is_map(inner) else {}
