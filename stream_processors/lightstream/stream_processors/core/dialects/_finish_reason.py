"""Why an answer ended, under each of the names that tracers give it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lightstream.schemas.records import SpanEventRecord, SpanRecord

from ._values import is_list, is_map, parse_json, text_or_none

__all__ = ["FinishReasons"]

_OF_ALL = "gen_ai.response.finish_reasons"
_OUTPUT = "gen_ai.output.messages"
_OF_THE_ONLY_CHOICE = ("ai.response.finishReason", "llm.finish_reason")
_OF_A_MESSAGE = "finish_reason"

_UNREAD: Any = object()


class FinishReasons:
    """Those that one span tells of its choices. Each text in it is parsed once at most, and only when asked for."""

    def __init__(self, span: SpanRecord) -> None:
        self._attributes = span.attributes
        self._listed: Any = _UNREAD
        self._messages: Any = _UNREAD
        self._unread_events = iter(span.events)
        self._in_events: dict[float, tuple[str, str]] = {}

    def of(self, choice_index: int) -> tuple[str, str] | None:
        """Why this choice of the answer ended, and where the span says so; ``None`` where it does not."""
        attributes = self._attributes
        if found := self._in_list(choice_index):
            return found, _OF_ALL
        place = f"gen_ai.completion.{choice_index}.finish_reason"
        if found := text_or_none(attributes.get(place)):
            return found, place
        if found := self._of_message(choice_index):
            return found, f"{_OUTPUT}[{choice_index}]"
        for place in _OF_THE_ONLY_CHOICE if choice_index == 0 else ():
            if found := text_or_none(attributes.get(place)):
                return found, place
        return self._of_event(choice_index)

    def _in_list(self, index: int) -> str | None:
        """One of a list, which may be JSON text; or the text alone, of the first choice."""
        value = self._attributes.get(_OF_ALL)
        if self._listed is _UNREAD:
            self._listed = parse_json(value)
        if is_list(self._listed):
            return text_or_none(self._listed[index]) if index < len(self._listed) else None
        return value if index == 0 and isinstance(value, str) and value.isidentifier() else None

    def _of_message(self, index: int) -> str | None:
        if self._messages is _UNREAD:
            self._messages = _messages(self._attributes.get(_OUTPUT))
        return _reason_of(self._messages[index]) if index < len(self._messages) else None

    def _of_event(self, index: int) -> tuple[str, str] | None:
        """The first event that tells it."""
        while index not in self._in_events:
            event = next(self._unread_events, None)
            if event is None:
                return None
            for choice, reason in _told_in(event):
                self._in_events.setdefault(choice, (reason, event.name))
        return self._in_events[index]


def _messages(value: object) -> list[Any] | tuple[Any, ...]:
    if isinstance(value, str) and f'"{_OF_A_MESSAGE}"' not in value:
        return ()  # long, and parsed for nothing
    messages = parse_json(value)
    return messages if is_list(messages) else ()


def _reason_of(message: object) -> str | None:
    return text_or_none(message.get(_OF_A_MESSAGE)) if is_map(message) else None


def _told_in(event: SpanEventRecord) -> Iterator[tuple[float, str]]:
    """Choices and why they ended: a choice's own event tells of one, others may hold the whole answer."""
    attributes = event.attributes
    if event.name == "gen_ai.choice":
        index = attributes.get("index", 0)
        told = [(index, attributes)] if isinstance(index, (int, float)) else []
    else:
        told = list(enumerate(_messages(attributes.get(_OUTPUT))))
    return ((index, reason) for index, message in told if (reason := _reason_of(message)))
