"""GenAI's conventions up to 1.36: a message is an event, on the span or, as Pydantic AI has it, in an attribute."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lightstream.schemas.records import SpanRecord

from ..dialects import is_list, is_map, parse_json
from ._content import Content, content_of
from ._conversation import Conversation, Message, messages_of, openai_call

__all__ = ["conversation_of_events", "read_events"]

CHOICE = "gen_ai.choice"
_ROLES = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
_ASKED, _ANSWERED = "gen_ai.content.prompt", "gen_ai.content.completion"
_BODY = "gen_ai.event.content"
"""Where Azure's tracers keep the event as JSON."""


def read_events(span: SpanRecord) -> Conversation | None:
    """Events of 1.28 to 1.36, else the two of 1.26."""
    if not span.events:
        return None
    found = conversation_of_events("gen_ai", ((event.name, event.attributes) for event in span.events))
    for event in span.events:
        if event.name == _ASKED:
            found.messages += _told("user", event.attributes.get("gen_ai.prompt"))
        elif event.name == _ANSWERED:
            found.answer += _told("assistant", event.attributes.get("gen_ai.completion"))
    return found


def conversation_of_events(source: str, events: Iterable[tuple[str, Mapping[str, Any]]]) -> Conversation:
    """What events (name, content) say; those of other names say nothing."""
    found = Conversation(source)
    choices: list[tuple[int, Message]] = []
    for name, attributes in events:
        if name == CHOICE:
            body = _body(attributes)
            index = body.get("index")
            choices.append((index if type(index) is int else 0, _choice(body)))
        elif name in _ROLES:
            found.messages.append(_message(_ROLES[name], _body(attributes)))
    found.answer = [message for _, message in sorted(choices, key=lambda choice: choice[0])]
    return found


def _told(role: str, value: object) -> list[Message]:
    """Messages as JSON, or one as text."""
    parsed = parse_json(value)
    if parsed is None:
        return [{"role": role, "content": value}] if isinstance(value, str) and value else []
    return messages_of([parsed] if is_map(parsed) else parsed)


def _body(attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    body = parse_json(attributes.get(_BODY))
    return {**attributes, **body} if is_map(body) else attributes


def _choice(body: Mapping[str, Any]) -> Message:
    """The message, or its content alone; tool calls may be beside it."""
    message = parse_json(body.get("message"))
    if is_map(message):
        return _message("assistant", {"tool_calls": body.get("tool_calls"), **message})
    return _message("assistant", {**body, "content": body.get("message", body.get("content"))})


def _message(role: str, body: Mapping[str, Any]) -> Message:
    named = body.get("role")
    message: Message = {"role": named if isinstance(named, str) and named else role, "content": _content(body)}
    calls = parse_json(body.get("tool_calls"))
    if is_list(calls) and calls:
        message["content"] = message["content"] or None
        message["tool_calls"] = [openai_call(call) for call in calls if is_map(call)]
    if role == "tool" and isinstance(body.get("id"), str):
        message["tool_call_id"] = body["id"]
    return message


def _content(body: Mapping[str, Any]) -> Content:
    """Text, or parts: as JSON too, as Strands has them (``[{"text": "hi"}]``)."""
    content = body.get("content")
    if isinstance(content, str) and content.startswith("[{"):
        parsed = parse_json(content)
        if is_list(parsed) and all(is_map(part) and isinstance(part.get("text"), str) for part in parsed):
            return content_of(parsed)
    return content_of(content)
