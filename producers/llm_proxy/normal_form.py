"""The normal form of an answer's message: its content, whether it came whole or in pieces. Pure.

Servers differ: a model's thinking is ``reasoning_content``, ``reasoning`` or ``thinking``; a tool's call has no index,
or all have the same; a text ends in half of a character. Here each of these is one thing, made once. The
record, and the interfaces that agents speak, are written from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from lightstream.schemas.valid_text import valid_text

from .tool_calls import ToolCall, ToolCalls

PartKind: TypeAlias = Literal["thinking", "text", "refusal", "call"]

RECORDED_THINKING = "reasoning_content"

THINKING_NAMES = (RECORDED_THINKING, "reasoning", "thinking", "reasoning_details", "thinking_blocks")
"""Of DeepSeek and SGLang; vLLM; Ollama; OpenRouter and LiteLLM, as lists. Some send one text under two names."""

PROVIDER_FIELDS = "provider_specific_fields"

_READ = frozenset({"role", "content", "refusal", "tool_calls", "function_call", PROVIDER_FIELDS, *THINKING_NAMES})


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of an answer: text, or the arguments of a call of a tool that begins or goes on."""

    kind: PartKind
    text: str
    call: ToolCall | None = None


@dataclass(slots=True)
class Message:
    """A message, as far as it has come; a whole one is a single piece.

    Attributes:
        role: empty until it was told.
        texts: what was said, by its kind; a kind of which the server never spoke is missing.
        calls: of tools.
        others: fields with other names, as the server sent them.
    """

    role: str = ""
    texts: dict[PartKind, str] = field(default_factory=dict[PartKind, str])
    calls: ToolCalls = field(default_factory=ToolCalls)
    others: dict[str, Any] = field(default_factory=dict[str, Any])
    _halves: dict[PartKind, tuple[str, str]] = field(default_factory=dict[PartKind, tuple[str, str]])

    def add(self, piece: dict[str, Any], *, is_last: bool) -> list[Part]:
        """Take a message, or the ``delta`` of a chunk; returns the part that it adds.

        Args:
            piece: mended in place, for agents who get it: no half characters, calls as by :meth:`ToolCalls.add`.
            is_last: nothing follows, so that the other half of a character is not waited for.
        """
        role = piece.get("role")
        if isinstance(role, str) and role:
            self.role = role
        parts: list[Part] = []
        thinking = next((name for name in THINKING_NAMES if _texts_of(piece.get(name))), "")
        for kind, name in _NAMES:
            parts += self._take(piece, kind, thinking if kind == "thinking" else name, is_last=is_last)
            if kind == "thinking":
                parts += self._text_parts("thinking", _thinking_among(piece.get("content")))
        parts += [Part("call", arguments, call) for call, arguments in self.calls.add(piece)]
        for name, value in piece.items():
            if name not in _READ and value is not None:
                self._keep(name, value)
        return parts

    @property
    def ends_in_half(self) -> bool:
        """True if the last piece ended in half of a character."""
        return bool(self._halves)

    @property
    def parts(self) -> list[Part]:
        """All of it, in the order in which a model says it."""
        found = [Part(kind, self.texts[kind]) for kind, _ in _NAMES if self.texts.get(kind)]
        return found + [Part("call", call.arguments, call) for call in self.calls.collected]

    def recorded(self) -> dict[str, Any]:
        """As a chat message; empty if nothing came."""
        if not (self.role or self.texts or self.calls.collected or self.others):
            return {}
        message: dict[str, Any] = {"role": self.role or "assistant"}
        if "thinking" in self.texts:
            message[RECORDED_THINKING] = self.texts["thinking"]
        message["content"] = self.texts.get("text")
        if "refusal" in self.texts:
            message["refusal"] = self.texts["refusal"]
        if self.calls.collected:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self.calls.collected
            ]
        return message | self.others

    def _take(self, piece: dict[str, Any], kind: PartKind, name: str, *, is_last: bool) -> list[Part]:
        """The text of one kind, without half characters: one at its end waits for the next piece."""
        given = piece.get(name)
        half, half_name = self._halves.pop(kind, ("", ""))
        text = half + _texts_of(given)
        if not text:
            if given == "":
                self.texts.setdefault(kind, "")
            return []
        is_half = "\ud800" <= text[-1] <= "\udbff" and text != half  # no more than one piece is waited for
        if is_half and not is_last:
            self._halves[kind], text = (text[-1], name), text[:-1]
        text = _mended(text)
        if isinstance(given, str):
            for each in THINKING_NAMES if kind == "thinking" else (name,):
                if piece.get(each) == given:  # some servers send it under two names
                    piece[each] = text
        elif half:
            piece[half_name] = text
        return self._text_parts(kind, text)

    def _text_parts(self, kind: PartKind, text: str) -> list[Part]:
        if not text:
            return []
        self.texts[kind] = self.texts.get(kind, "") + text
        return [Part(kind, text)]

    def _keep(self, name: str, value: Any) -> None:
        """Texts and lists grow; of anything else the last counts."""
        known = self.others.get(name)
        if isinstance(value, str) and isinstance(known, str):
            self.others[name] = known + value
        elif isinstance(value, list) and isinstance(known, list):
            self.others[name] = [*known, *value]
        else:
            self.others[name] = value


_NAMES: tuple[tuple[PartKind, str], ...] = (("thinking", ""), ("text", "content"), ("refusal", "refusal"))


def _mended(text: str) -> str:
    """The text with halves of characters joined where both are there, and ``?`` in place of others."""
    try:
        text.encode()
    except UnicodeEncodeError:
        joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        return str(valid_text(joined))
    return text


def _texts_of(value: Any) -> str:
    """A text; or the texts in a list of parts, which some servers send in its place."""
    if isinstance(value, str):
        return value
    texts: list[str] = []
    for part in value if isinstance(value, list) else ():
        if isinstance(part, dict) and not isinstance(part.get("thinking"), list):
            texts += [part[name] for name in ("text", "thinking", "summary") if isinstance(part.get(name), str)][:1]
    return "".join(texts)


def _thinking_among(content: Any) -> str:
    """Thinking as Mistral has it: among the parts of the content, with parts of its own."""
    parts: list[Any] = content if isinstance(content, list) else []
    return "".join(
        _texts_of(part.get("thinking"))
        for part in parts
        if isinstance(part, dict) and isinstance(part.get("thinking"), list)
    )
