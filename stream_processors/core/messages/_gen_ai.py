"""OpenTelemetry's GenAI conventions, in every version.

Flat attributes (up to 1.27, AgentOps, traceloop); events, on the span or, as Pydantic AI has them, in an attribute (up
to 1.36); messages of parts (from 1.37 on, and LiteLLM).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lightstream.schemas.records import SpanRecord

from ..dialects import grouped, is_list, is_map, parse_json
from ._conversation import (
    Content,
    Conversation,
    Message,
    content_of,
    function_tools,
    messages_of,
    openai_call,
    text_of,
    with_reasoning,
)
from ._items import choices_of_items, messages_of_items


def read_flattened(span: SpanRecord) -> Conversation | None:
    """``gen_ai.prompt.N.*``, ``gen_ai.completion.N.*``, and tools under one of three names."""
    if not any(name.startswith(("gen_ai.prompt.", "gen_ai.completion.")) for name in span.attributes):
        return None
    found = Conversation("gen_ai")
    found.messages = _flat_messages(grouped(span.attributes, "gen_ai.prompt"))
    found.answer = [
        m for m in _flat_messages(grouped(span.attributes, "gen_ai.completion")) if m["role"] == "assistant"
    ]
    for prefix in ("gen_ai.request.functions", "gen_ai.request.tools", "llm.request.functions"):
        values = grouped(span.attributes, prefix)
        if is_list(values):
            found.tools = function_tools(values)
            break
    return found


def _flat_messages(values: object) -> list[Message]:
    if not is_list(values):
        return []
    return [message for value in values if is_map(value) and (message := _flat_message(value)) is not None]


def _flat_message(value: Mapping[str, Any]) -> Message | None:
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
    return with_reasoning(message, value)


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
    found = Conversation("gen_ai", system_message(at.get("gen_ai.system_instructions")))
    found.messages += messages_of_items(at.get("gen_ai.input.messages"), found.left_out)
    found.take_answers(choices_of_items(at.get("gen_ai.output.messages"), found.left_out))
    found.tools = function_tools(at.get("gen_ai.tool.definitions"))
    return found


def system_message(instructions: object) -> list[Message]:
    """A system message of ``gen_ai.system_instructions``: a list of parts (LiteLLM: of messages), or plain text."""
    parsed = parse_json(instructions)
    given = instructions if parsed is None else parsed
    if is_list(given):
        parts = [part for item in given for part in _parts_of(item)]
        text = text_of(content_of(parts))
    else:
        text = given if isinstance(given, str) else ""
    return [{"role": "system", "content": text}] if text else []


def _parts_of(item: object) -> list[Any]:
    inner = item.get("parts") if is_map(item) else None
    return list(inner) if is_list(inner) else [item]


CHOICE = "gen_ai.choice"
_ROLES = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
_PROMPT_EVENT, _COMPLETION_EVENT = "gen_ai.content.prompt", "gen_ai.content.completion"
_BODY = "gen_ai.event.content"
"""The attribute in which Azure's tracers keep the event as JSON."""


def read_events(span: SpanRecord) -> Conversation | None:
    """Events of 1.28 to 1.36, else the two of 1.26."""
    if not span.events:
        return None
    found = conversation_of_events("gen_ai", ((event.name, event.attributes) for event in span.events))
    for event in span.events:
        if event.name == _PROMPT_EVENT:
            found.messages += _as_messages("user", event.attributes.get("gen_ai.prompt"))
        elif event.name == _COMPLETION_EVENT:
            found.answer += _as_messages("assistant", event.attributes.get("gen_ai.completion"))
    return found


def conversation_of_events(source: str, events: Iterable[tuple[str, Mapping[str, Any]]]) -> Conversation:
    """The conversation in events (name, content); events of other names are ignored."""
    found = Conversation(source)
    choices: list[tuple[int, Message]] = []
    for name, attributes in events:
        if name == CHOICE:
            body = _event_body(attributes)
            index = body.get("index")
            choices.append((index if type(index) is int else 0, _choice_message(body)))
        elif name in _ROLES:
            found.messages.append(_event_message(_ROLES[name], _event_body(attributes)))
    found.answer = [message for _, message in sorted(choices, key=lambda choice: choice[0])]
    return found


def _as_messages(role: str, value: object) -> list[Message]:
    """Messages as JSON, or one as text."""
    parsed = parse_json(value)
    if parsed is None:
        return [{"role": role, "content": value}] if isinstance(value, str) and value else []
    return messages_of([parsed] if is_map(parsed) else parsed)


def _event_body(attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    body = parse_json(attributes.get(_BODY))
    return {**attributes, **body} if is_map(body) else attributes


def _choice_message(body: Mapping[str, Any]) -> Message:
    """The message, or its content alone; tool calls may be beside it."""
    message = parse_json(body.get("message"))
    if is_map(message):
        return _event_message("assistant", {"tool_calls": body.get("tool_calls"), **message})
    return _event_message("assistant", {**body, "content": body.get("message", body.get("content"))})


def _event_message(role: str, body: Mapping[str, Any]) -> Message:
    named = body.get("role")
    message: Message = {"role": named if isinstance(named, str) and named else role, "content": _event_content(body)}
    calls = parse_json(body.get("tool_calls"))
    if is_list(calls) and calls:
        message["content"] = message["content"] or None
        message["tool_calls"] = [openai_call(call) for call in calls if is_map(call)]
    if role == "tool" and isinstance(body.get("id"), str):
        message["tool_call_id"] = body["id"]
    return with_reasoning(message, body)


def _event_content(body: Mapping[str, Any]) -> Content:
    """Text, or parts: as JSON too, as Strands has them (``[{"text": "hi"}]``)."""
    content = body.get("content")
    if isinstance(content, str) and content.startswith("[{"):
        parsed = parse_json(content)
        if is_list(parsed) and all(is_map(part) and isinstance(part.get("text"), str) for part in parsed):
            return content_of(parsed)
    return content_of(content)
