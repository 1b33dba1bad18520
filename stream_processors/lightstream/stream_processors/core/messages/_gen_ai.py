"""OpenTelemetry's GenAI conventions: flat attributes (up to 1.27, AgentOps, traceloop) and messages of parts (1.37)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightstream.schemas.records import SpanRecord

from ..dialects import grouped, is_list, is_map, parse_json
from ._conversation import Conversation, Message, as_text, function_tool, tool_call

__all__ = ["read_flattened", "read_parts"]


def read_flattened(span: SpanRecord) -> Conversation | None:
    """``gen_ai.prompt.N.*``, ``gen_ai.completion.N.*``, and tools under one of three names."""
    if not any(name.startswith(("gen_ai.prompt.", "gen_ai.completion.")) for name in span.attributes):
        return None
    found = Conversation("gen_ai")
    found.messages = _messages(grouped(span.attributes, "gen_ai.prompt"))
    found.answer = [m for m in _messages(grouped(span.attributes, "gen_ai.completion")) if m["role"] == "assistant"]
    for prefix in ("gen_ai.request.functions", "gen_ai.request.tools", "llm.request.functions"):
        values = grouped(span.attributes, prefix)
        if is_list(values):
            found.tools = [tool for value in values if (tool := function_tool(value)) is not None] or None
            break
    return found


def _messages(values: object) -> list[Message]:
    if not is_list(values):
        return []
    return [message for value in values if is_map(value) and (message := _message(value)) is not None]


def _message(value: Mapping[str, Any]) -> Message | None:
    """One entry. Tracers that repeat earlier turns forget their role, which tool calls and tool results give away."""
    calls, of_call = value.get("tool_calls"), value.get("tool_call_id")
    role = value.get("role") or ("assistant" if calls else "tool" if of_call else None)
    if not isinstance(role, str):
        return None
    message: Message = {"role": role, "content": value.get("content", "")}
    if role == "assistant" and is_list(calls):
        message["content"] = message["content"] or None
        message["tool_calls"] = [_tool_call(call) for call in calls if is_map(call)]
    if of_call is not None and role == "tool":
        message["tool_call_id"] = of_call
    return message


def _tool_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    inner = function if is_map(function) else call
    return tool_call(call.get("id"), inner.get("name"), inner.get("arguments"))


def read_parts(span: SpanRecord) -> Conversation | None:
    """``gen_ai.input.messages``, ``gen_ai.output.messages``: lists of messages with parts, as JSON or structured."""
    at = span.attributes
    if "gen_ai.input.messages" not in at and "gen_ai.output.messages" not in at:
        return None
    found = Conversation("gen_ai")
    system = parse_json(at.get("gen_ai.system_instructions"))
    if is_list(system) and system:
        found.messages.append({"role": "system", "content": _text(system)})
    found.messages += _with_parts(parse_json(at.get("gen_ai.input.messages")))
    found.answer = _with_parts(parse_json(at.get("gen_ai.output.messages")))
    tools = parse_json(at.get("gen_ai.tool.definitions"))
    if is_list(tools):
        found.tools = [tool for value in tools if (tool := function_tool(value)) is not None] or None
    return found


def _with_parts(values: object) -> list[Message]:
    messages: list[Message] = []
    for value in values if is_list(values) else ():
        if not is_map(value) or not isinstance(value.get("role"), str):
            continue
        parts = value.get("parts")
        if not is_list(parts):
            messages.append({"role": value["role"], "content": value.get("content", "")})
            continue
        messages += _from_parts(value["role"], [part for part in parts if is_map(part)])
    return messages


def _from_parts(role: str, parts: list[Mapping[str, Any]]) -> list[Message]:
    """A message, or one for each tool result it holds."""
    results = [part for part in parts if part.get("type") == "tool_call_response"]
    messages: list[Message] = [
        {
            "role": "tool",
            "content": as_text(part.get("response", part.get("result", ""))),
            "tool_call_id": str(part.get("id") or ""),
        }
        for part in results
    ]
    calls = [tool_call(p.get("id"), p.get("name"), p.get("arguments")) for p in parts if p.get("type") == "tool_call"]
    text = _text(parts)
    if calls:
        messages.append({"role": role, "content": text or None, "tool_calls": calls})
    elif text or not results:
        messages.append({"role": role, "content": text})
    return messages


def _text(parts: object) -> str:
    """The text parts, joined."""
    if not is_list(parts):
        return ""
    texts = [part.get("content", part.get("text")) for part in parts if is_map(part) and part.get("type") == "text"]
    return "".join(text for text in texts if isinstance(text, str))
