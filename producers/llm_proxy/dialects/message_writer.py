"""An answer as Anthropic's message, whole and event by event: the whole one is the sum of the events. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pydantic_core import to_json

from ..capture import Choice
from ..json_text import read_json
from ..normal_form import Part, PartKind
from ..tool_calls import ToolCall

UNREADABLE_ARGUMENTS = "unreadable_arguments"
"""A tool's arguments where the model's are not a JSON object: their text, under this name. A message has
no words for them, and a call that failed for it would not be trained on."""

STOP_REASONS = {"length": "max_tokens", "content_filter": "refusal", "refusal": "refusal"}

PING: dict[str, Any] = {"type": "ping"}

_FIELDS: dict[PartKind, tuple[str, str]] = {
    "thinking": ("thinking", "thinking_delta"),
    "text": ("text", "text_delta"),
    "refusal": ("text", "text_delta"),  # the message's stop reason tells that it is one
}
"""Kind of a part -> type of its block, which is also the field with the text, and type of its deltas."""


class MessageWriter:
    """Writes one message.

    Calls of tools are written once the answer is over, and pings until then: only then is it known whether their
    arguments are an object, and an agent can do nothing with them before.

    Args:
        message_id: the message's.
        model: name of the model.
        stop_sequences: those that the agent asked for.
        tool_names: name of a tool for the model server -> the agent's own.

    Attributes:
        message: as far as it is written.
    """

    def __init__(
        self, message_id: str, model: str, stop_sequences: Collection[str], tool_names: Mapping[str, str]
    ) -> None:
        self._stop_sequences = stop_sequences
        self._tool_names = tool_names
        self._content: list[dict[str, Any]] = []
        self._is_open = False
        self.message: dict[str, Any] = {
            "id": message_id,
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": self._content,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": 0},
        }

    def begin(self) -> list[dict[str, Any]]:
        """The first events."""
        return [{"type": "message_start", "message": self.message | {"content": []}}]

    def write(self, part: Part) -> list[dict[str, Any]]:
        """The events of one part."""
        if part.kind == "call":
            return [PING]
        name, delta = _FIELDS[part.kind]
        events: list[dict[str, Any]] = []
        if not self._is_open or self._content[-1]["type"] != name:
            block = {"type": name, name: ""} | ({"signature": ""} if name == "thinking" else {})
            events += [*self._close(), self._start(block)]
            self._content.append(dict(block))
        self._content[-1][name] += part.text
        return [*events, self._event("content_block_delta", delta={"type": delta, name: part.text})]

    def end(self, choice: Choice, usage: Mapping[str, Any] | None) -> list[dict[str, Any]]:
        """The last events."""
        events = self._close()
        for call in choice.message.calls.collected:
            events += self._call(call)
        stop = {"stop_reason": self._stop_reason(choice), "stop_sequence": None}
        if stop["stop_reason"] == "stop_sequence":
            stop["stop_sequence"] = choice.stop_text
        self.message |= stop | {"usage": _usage(usage or {})}
        delta = {"type": "message_delta", "delta": stop, "usage": self.message["usage"]}
        return [*events, delta, {"type": "message_stop"}]

    def _stop_reason(self, choice: Choice) -> str:
        reason = STOP_REASONS.get(choice.finish_reason or "")
        if reason is not None:
            return reason
        if choice.message.calls.collected:
            return "tool_use"
        if choice.stop_text in self._stop_sequences:
            return "stop_sequence"
        return "refusal" if choice.message.texts.get("refusal") else "end_turn"

    def _call(self, call: ToolCall) -> list[dict[str, Any]]:
        name = self._tool_names.get(call.name, call.name)
        given = _object(call.arguments)
        block = {"type": "tool_use", "id": call.id, "name": name, "input": {}}
        start = self._start(block)
        self._content.append(block | {"input": given})
        delta = {"type": "input_json_delta", "partial_json": to_json(given).decode() if given else ""}
        return [start, self._event("content_block_delta", delta=delta), self._event("content_block_stop")]

    def _start(self, block: dict[str, Any]) -> dict[str, Any]:
        self._is_open = block["type"] != "tool_use"
        return {"type": "content_block_start", "index": len(self._content), "content_block": block}

    def _close(self) -> list[dict[str, Any]]:
        was_open, self._is_open = self._is_open, False
        return [self._event("content_block_stop")] if was_open else []

    def _event(self, kind: str, **fields: Any) -> dict[str, Any]:
        return {"type": kind, "index": len(self._content) - 1} | fields


def _object(arguments: str) -> dict[str, Any]:
    try:
        read = read_json(arguments.encode()) if arguments.strip() else {}
    except ValueError:
        read = None
    return read if isinstance(read, dict) else {UNREADABLE_ARGUMENTS: arguments}


def _usage(usage: Mapping[str, Any]) -> dict[str, int]:
    """Anthropic counts what came from a cache apart."""
    cached = _number(usage, "cache_read_input_tokens") or _number(usage.get("prompt_tokens_details"), "cached_tokens")
    counted = {
        "input_tokens": max(0, _number(usage, "prompt_tokens") - cached),
        "output_tokens": _number(usage, "completion_tokens"),
    }
    return counted | ({"cache_read_input_tokens": cached} if cached else {})


def _number(values: Any, name: str) -> int:
    value = values.get(name) if isinstance(values, Mapping) else None
    return value if type(value) is int and value > 0 else 0
