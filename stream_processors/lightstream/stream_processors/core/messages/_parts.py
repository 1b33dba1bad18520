"""Messages of parts, as GenAI's conventions have them from 1.37 on, Pydantic AI and LiteLLM among those who follow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..dialects import is_list, is_map, parse_json
from ._content import content_of, text_of
from ._conversation import Message, as_text, openai_call, tool_call

__all__ = ["messages_of_parts", "system_message"]


def messages_of_parts(values: object) -> list[Message]:
    """The chat messages of a list of ``{"role": …, "parts": […]}``, structured or as JSON; what is none is left out."""
    values = parse_json(values)
    messages: list[Message] = []
    for value in values if is_list(values) else ():
        if not is_map(value) or not isinstance(value.get("role"), str):
            continue
        if is_list(value.get("parts")):
            messages += _messages(value)
        else:
            messages.append({"role": value["role"], "content": value.get("content", "")})
    return messages


def system_message(instructions: object) -> list[Message]:
    """A system message of ``gen_ai.system_instructions``: a list of parts (LiteLLM: of messages), or plain text."""
    parsed = parse_json(instructions)
    told = instructions if parsed is None else parsed
    if is_list(told):
        parts = [part for item in told for part in _parts_of(item)]
        text = text_of(content_of(parts))
    else:
        text = told if isinstance(told, str) else ""
    return [{"role": "system", "content": text}] if text else []


def _parts_of(item: object) -> list[Any]:
    inner = item.get("parts") if is_map(item) else None
    return list(inner) if is_list(inner) else [item]


def _messages(value: Mapping[str, Any]) -> list[Message]:
    """A message, or one for each tool result it holds. LiteLLM keeps tool calls and their ids beside the parts."""
    parts = [part for part in value["parts"] if is_map(part)]
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
    beside = value.get("tool_calls")
    calls += [openai_call(call) for call in beside if is_map(call)] if is_list(beside) else []
    content = content_of(parts)
    if calls:
        messages.append({"role": value["role"], "content": content or None, "tool_calls": calls})
    elif content or not results:
        message: Message = {"role": value["role"], "content": content}
        if value["role"] == "tool" and isinstance(value.get("tool_call_id"), str):
            message["tool_call_id"] = value["tool_call_id"]
        messages.append(message)
    return messages
