"""Why an answer ended, under each of the names that tracers give it."""

from __future__ import annotations

from lightstream.schemas.records import SpanEventRecord, SpanRecord

from ._values import is_list, is_map, parse_json, text_or_none

__all__ = ["finish_reason"]

_OF_ALL = "gen_ai.response.finish_reasons"
_OUTPUT = "gen_ai.output.messages"
_OF_THE_ONLY_CHOICE = ("ai.response.finishReason", "llm.finish_reason")
_OF_A_MESSAGE = "finish_reason"


def finish_reason(span: SpanRecord, choice_index: int) -> tuple[str, str] | None:
    """Why this choice of the answer ended, and where the span says so; ``None`` where it does not."""
    attributes = span.attributes
    if found := _listed(attributes.get(_OF_ALL), choice_index):
        return found, _OF_ALL
    place = f"gen_ai.completion.{choice_index}.finish_reason"
    if found := text_or_none(attributes.get(place)):
        return found, place
    if found := _of_message(attributes.get(_OUTPUT), choice_index):
        return found, f"{_OUTPUT}[{choice_index}]"
    for place in _OF_THE_ONLY_CHOICE if choice_index == 0 else ():
        if found := text_or_none(attributes.get(place)):
            return found, place
    for event in span.events:
        if found := _in_event(event, choice_index):
            return found, event.name
    return None


def _listed(value: object, index: int) -> str | None:
    """One of a list, which may be JSON text; or the text alone, of the first choice."""
    reasons = parse_json(value)
    if is_list(reasons):
        return text_or_none(reasons[index]) if index < len(reasons) else None
    return value if index == 0 and isinstance(value, str) and value.isidentifier() else None


def _of_message(value: object, index: int) -> str | None:
    if isinstance(value, str) and f'"{_OF_A_MESSAGE}"' not in value:
        return None  # long, and parsed for nothing
    messages = parse_json(value)
    message = messages[index] if is_list(messages) and index < len(messages) else None
    return text_or_none(message.get(_OF_A_MESSAGE)) if is_map(message) else None


def _in_event(event: SpanEventRecord, index: int) -> str | None:
    """Of a choice's own event, or of one that holds the whole answer."""
    attributes = event.attributes
    if event.name == "gen_ai.choice":
        return text_or_none(attributes.get(_OF_A_MESSAGE)) if attributes.get("index", 0) == index else None
    return _of_message(attributes.get(_OUTPUT), index)
