"""The calls of tools in an answer, whole or from the pieces of a stream. Pure."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json, to_json

from lightstream.schemas.valid_text import valid_text

OLD_INTERFACE = "function_call"
"""Field of OpenAI's interface before tools: one call, whose pieces have neither index nor id."""


@dataclass(slots=True)
class ToolCall:
    """A call of a tool. ``arguments`` are as the model wrote them; ``index`` is the server's own, if it has one."""

    position: int
    id: str
    name: str = ""
    arguments: str = ""
    index: object = None


@dataclass(slots=True)
class ToolCalls:
    """The calls of one answer, as far as they have come, in the order in which they began."""

    collected: list[ToolCall] = field(default_factory=list[ToolCall])

    def add(self, piece: dict[str, Any]) -> list[tuple[ToolCall, str]]:
        """Take a message or a ``delta``; returns each call in it that begins or goes on, with its new arguments.

        ``piece`` is mended in place, for agents who get it: each call has the index of its place, at its first piece an
        id and a name, and arguments as text.
        """
        added: list[tuple[ToolCall, str]] = []
        listed = piece.get("tool_calls")
        if isinstance(listed, list) and listed:
            piece["tool_calls"] = [self._take(entry, added) for entry in listed if isinstance(entry, dict)]
        old = piece.get(OLD_INTERFACE)
        if isinstance(old, dict):
            self._take({"index": OLD_INTERFACE, "function": old}, added)
        return added

    def _take(self, entry: dict[str, Any], additions: list[tuple[ToolCall, str]]) -> dict[str, Any]:
        """Note what an entry tells; returns the entry as agents get it."""
        named = entry.get("function")
        function: dict[str, Any] = named if isinstance(named, dict) else {}
        name, call_id = _plain(function.get("name")), _plain(entry.get("id"))
        arguments = _arguments(function.get("arguments"))
        call = self._call_of(entry.get("index"), call_id, name)
        is_new = call is None
        if call is None:
            call = ToolCall(len(self.collected), call_id or f"call_{secrets.token_hex(12)}", index=entry.get("index"))
            self.collected.append(call)
        added = "" if name == call.name else name  # some servers repeat it in each piece
        call.name += added
        call.arguments += arguments
        additions.append((call, arguments))
        others = {key: value for key, value in entry.items() if key not in ("index", "id", "type", "function")}
        begins = {"id": call.id, "type": "function"} if is_new else {}
        shown = ({"name": added} if added or is_new else {}) | {"arguments": arguments}
        return {"index": call.position} | begins | {"function": shown} | others

    def _call_of(self, index: object, call_id: str, name: str) -> ToolCall | None:
        """The call that an entry goes on with; ``None`` where it begins one.

        A new id together with a name begins a call, whatever its index. Without an id, a name does so where there is no
        index, or where the arguments of the call with that index are complete.
        """
        by_id = next((call for call in self.collected if call_id and call.id == call_id), None)
        if index is None:
            if call_id or name:
                return by_id
            return self.collected[-1] if self.collected else None
        last = next((call for call in reversed(self.collected) if call.index == index), None)
        if last is None:
            return None if name else by_id
        if not name or last.id == call_id:
            return last
        if call_id:
            return by_id if by_id is not None or last.name else last
        return None if is_json_object(last.arguments) else last


def is_json_object(text: str) -> bool:
    """True for the complete text of a JSON object."""
    try:
        return isinstance(from_json(text), dict)
    except ValueError:
        return False


def _plain(value: Any) -> str:
    return str(valid_text(value)) if isinstance(value, str) else ""


def _arguments(value: Any) -> str:
    if isinstance(value, str):
        return str(valid_text(value))
    return "" if value is None else to_json(valid_text(value)).decode()
