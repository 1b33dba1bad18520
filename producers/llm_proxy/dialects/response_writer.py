"""An answer as OpenAI's response, whole and event by event: the whole one is the sum of the events. Pure."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any

from ..capture import Choice
from ..normal_form import Part
from ..tool_calls import ToolCall

INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter", "refusal": "content_filter"}
"""Finish reason -> reason of an incomplete response."""

ItemOf = Callable[[ToolCall], dict[str, Any]]


class ResponseWriter:
    """Writes one response.

    Thinking is a reasoning item with a summary, which is over where something else begins; text goes into one message.

    Args:
        response: its fields but for output, status and usage.
        item_of: the item of a call of a tool, without id and status. A ``function_call`` is written as it comes; the
            content of any other item once the answer is over.

    Attributes:
        response: as far as it is written.
    """

    def __init__(self, response: dict[str, Any], item_of: ItemOf) -> None:
        self._item_of = item_of
        self._output: list[dict[str, Any]] = []
        self._thinking: int | None = None
        self._message: int | None = None
        self._calls: dict[int, int] = {}
        self.response: dict[str, Any] = response | {"status": "in_progress", "output": self._output}

    def begin(self) -> list[dict[str, Any]]:
        """The first events."""
        begun = self.response | {"output": []}
        return [{"type": "response.created", "response": begun}, {"type": "response.in_progress", "response": begun}]

    def write(self, part: Part) -> list[dict[str, Any]]:
        """The events of one part."""
        if part.kind == "thinking":
            return self._think(part.text)
        over = self._end_thinking()
        if part.call is not None:
            return over + self._call(part.call, part.text)
        return over + self._say("refusal" if part.kind == "refusal" else "output_text", part.text)

    def end(self, choice: Choice, usage: Mapping[str, Any] | None) -> list[dict[str, Any]]:
        """The last events."""
        events = self._end_thinking()
        why = INCOMPLETE.get(choice.finish_reason or "")
        status = "completed" if why is None else "incomplete"
        if self._message is not None:
            events += self._end_message(self._message, status)
        for call in choice.message.calls.collected:
            if call.position in self._calls:
                events += self._end_call(call, self._calls[call.position], status)
        self.response |= {"status": status, "usage": _usage(usage or {})}
        self.response["incomplete_details"] = None if why is None else {"reason": why}
        return [*events, {"type": f"response.{status}", "response": self.response}]

    def _add(self, item: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self._output.append(item)
        place = len(self._output) - 1
        return place, {"type": "response.output_item.added", "output_index": place, "item": _copy(item)}

    def _event(self, place: int, kind: str, **fields: Any) -> dict[str, Any]:
        return {"type": f"response.{kind}", "item_id": self._output[place]["id"], "output_index": place} | fields

    def _done(self, place: int) -> dict[str, Any]:
        item = _copy(self._output[place])
        return {"type": "response.output_item.done", "output_index": place, "item": item}

    def _think(self, text: str) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        part = {"type": "summary_text", "text": ""}
        if self._thinking is None:
            item = {"type": "reasoning", "id": _new_id("rs"), "summary": list[Any](), "status": "in_progress"}
            self._thinking, added = self._add(item)
            events = [added, self._event(self._thinking, "reasoning_summary_part.added", summary_index=0, part=part)]
            item["summary"] = [dict(part)]
        place = self._thinking
        self._output[place]["summary"][0]["text"] += text
        return [*events, self._event(place, "reasoning_summary_text.delta", summary_index=0, delta=text)]

    def _end_thinking(self) -> list[dict[str, Any]]:
        place, self._thinking = self._thinking, None
        if place is None:
            return []
        item = self._output[place]
        item["status"] = "completed"
        (part,) = item["summary"]
        return [
            self._event(place, "reasoning_summary_text.done", summary_index=0, text=part["text"]),
            self._event(place, "reasoning_summary_part.done", summary_index=0, part=dict(part)),
            self._done(place),
        ]

    def _say(self, kind: str, text: str) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        if self._message is None:
            item = {"type": "message", "id": _new_id("msg"), "role": "assistant", "content": list[Any]()}
            self._message, added = self._add(item | {"status": "in_progress"})
            events.append(added)
        place = self._message
        parts: list[dict[str, Any]] = self._output[place]["content"]
        index = next((number for number, part in enumerate(parts) if part["type"] == kind), len(parts))
        name = _text_field(kind)
        if index == len(parts):
            part: dict[str, Any] = {"type": kind, name: ""} | ({"annotations": []} if kind == "output_text" else {})
            parts.append(part)
            events.append(self._event(place, "content_part.added", content_index=index, part=dict(part)))
        parts[index][name] += text
        more: dict[str, Any] = {"logprobs": []} if kind == "output_text" else {}
        return [*events, self._event(place, f"{kind}.delta", content_index=index, delta=text, **more)]

    def _end_message(self, place: int, status: str) -> list[dict[str, Any]]:
        item = self._output[place]
        item["status"] = status
        events: list[dict[str, Any]] = []
        for index, part in enumerate(item["content"]):
            name = _text_field(part["type"])
            more: dict[str, Any] = {"logprobs": []} if part["type"] == "output_text" else {}
            fields = {name: part[name]} | more
            events.append(self._event(place, f"{part['type']}.done", content_index=index, **fields))
            events.append(self._event(place, "content_part.done", content_index=index, part=dict(part)))
        return [*events, self._done(place)]

    def _call(self, call: ToolCall, arguments: str) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        if call.position not in self._calls:
            item = self._item_of(call)
            begun = {name: _empty(value) if name in _CONTENT else value for name, value in item.items()}
            ids = {"id": _new_id(_ID_PREFIXES.get(item["type"], "call")), "status": "in_progress"}
            self._calls[call.position], added = self._add(begun | ids)
            events.append(added)
        place = self._calls[call.position]
        if self._output[place]["type"] == "function_call" and arguments:
            events.append(self._event(place, "function_call_arguments.delta", delta=arguments))
        return events

    def _end_call(self, call: ToolCall, place: int, status: str) -> list[dict[str, Any]]:
        item = self._output[place]
        item |= self._item_of(call) | {"status": status}
        if item["type"] == "function_call":
            fields = {"arguments": item["arguments"], "name": item["name"]}
            return [self._event(place, "function_call_arguments.done", **fields), self._done(place)]
        if item["type"] == "custom_tool_call":
            return [
                self._event(place, "custom_tool_call_input.delta", delta=item["input"]),
                self._event(place, "custom_tool_call_input.done", input=item["input"]),
                self._done(place),
            ]
        return [self._done(place)]


_ID_PREFIXES = {"function_call": "fc", "custom_tool_call": "ctc", "local_shell_call": "lsh", "shell_call": "sh"}

_CONTENT = ("arguments", "input", "action", "operation")
"""Fields of the items of calls that are complete only once the answer is over."""


def _empty(value: Any) -> Any:
    return type(value)()


def _text_field(kind: str) -> str:
    return "refusal" if kind == "refusal" else "text"


def _copy(item: dict[str, Any]) -> dict[str, Any]:
    """An event's own item: what is written later does not change it."""
    return {name: [dict(v) for v in value] if isinstance(value, list) else value for name, value in item.items()}


def _new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(16)}"


def _usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    read, written = _number(usage, "prompt_tokens"), _number(usage, "completion_tokens")
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": _number(usage.get("prompt_tokens_details"), "cached_tokens")},
        "output_tokens": written,
        "output_tokens_details": {
            "reasoning_tokens": _number(usage.get("completion_tokens_details"), "reasoning_tokens")
        },
        "total_tokens": _number(usage, "total_tokens") or read + written,
    }


def _number(values: Any, name: str) -> int:
    value = values.get(name) if isinstance(values, Mapping) else None
    return value if type(value) is int and value > 0 else 0
