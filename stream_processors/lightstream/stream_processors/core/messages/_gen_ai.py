"""OpenTelemetry's GenAI conventions: flat attributes (up to 1.27, AgentOps, traceloop) and messages of parts (1.37)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightstream.schemas.records import SpanRecord

from ..dialects import grouped, is_list, is_map
from ._conversation import Conversation, Message, function_tools, openai_call
from ._parts import messages_of_parts, system_message

__all__ = ["read_details", "read_flattened", "read_parts"]


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
            found.tools = function_tools(values)
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
        message["tool_calls"] = [openai_call(call) for call in calls if is_map(call)]
    if of_call is not None and role == "tool":
        message["tool_call_id"] = of_call
    return message


def read_parts(span: SpanRecord) -> Conversation | None:
    """``gen_ai.input.messages``, ``gen_ai.output.messages``: lists of messages with parts, as JSON or structured."""
    return _of_parts(span.attributes)


def read_details(span: SpanRecord) -> Conversation | None:
    """The same attributes, on an event."""
    details = (event.attributes for event in span.events if event.name == "gen_ai.client.inference.operation.details")
    return next((found for attributes in details if (found := _of_parts(attributes)) is not None), None)


def _of_parts(at: Mapping[str, Any]) -> Conversation | None:
    if "gen_ai.input.messages" not in at and "gen_ai.output.messages" not in at:
        return None
    return Conversation(
        "gen_ai",
        system_message(at.get("gen_ai.system_instructions")) + messages_of_parts(at.get("gen_ai.input.messages")),
        messages_of_parts(at.get("gen_ai.output.messages")),
        function_tools(at.get("gen_ai.tool.definitions")),
    )
