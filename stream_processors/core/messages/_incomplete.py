"""Spans that lost part of their conversation: to the limits of OpenTelemetry's SDKs, or to the size of a record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lightstream.schemas.attribute_names import DROPPED_ATTRIBUTES, DROPPED_EVENTS, TRUNCATED
from lightstream.schemas.records import SpanRecord

from ..dialects import parse_json

_ASKED = (
    "gen_ai.input.messages",
    "gen_ai.system_instructions",
    "langfuse.observation.input",
    "mlflow.spanInputs",
    "traceloop.entity.input",
    "ai.prompt.messages",
    "ai.prompt.tools",
    "ai.response.toolCalls",
    "events",
    "all_messages_events",
    "pydantic_ai.all_messages",
    "gen_ai.prompt",
    "gen_ai.event.content",
    "gen_ai.tool.definitions",
    "gen_ai.output.messages",
)
"""Attributes whose text is JSON, where it begins as such."""
_ANSWERED = ("langfuse.observation.output", "mlflow.spanOutputs", "traceloop.entity.output", "gen_ai.completion")
"""Attributes that may be the model's own text, which may be JSON that the model did not end."""
_BEGINS = ("[{", '{"')
_BEGINS_OF_ANSWERS = ('[{"role"', '{"role"', '{"choices"', '[{"type"', '{"id"')
_NUMBERED = ("gen_ai.prompt.", "gen_ai.completion.", "llm.input_messages.", "llm.output_messages.")
_OF_LLM = ("gen_ai.", "llm.", "ai.", "langfuse.", "mlflow.", "traceloop.", "pydantic_ai.", "openinference.")


def why_incomplete(span: SpanRecord) -> str:
    """Why part of the call's conversation is not in its span; empty where nothing shows that it is.

    What the proxy recorded is whole. A value of plain text that an SDK cut is not known from one that ended there.
    """
    call = span.llm_call
    if call is not None and (call.request_json is not None or call.response_json is not None):
        return ""
    if TRUNCATED in span.attributes:
        return "the span was over the limit of a record, and lost its largest values"
    for count, what in (
        (_dropped(span.dropped_attributes_count, span.attributes, DROPPED_ATTRIBUTES), "attributes"),
        (_dropped(span.dropped_events_count, span.attributes, DROPPED_EVENTS), "events"),
    ):
        if count:
            return f"the tracer left out {count} {what} of the span"
    if found := _cut(span.attributes) or _gap(span.attributes):
        return found
    for event in span.events:
        count = _dropped(event.dropped_attributes_count, event.attributes, DROPPED_ATTRIBUTES)
        if count and event.name.startswith(_OF_LLM):
            return f"the tracer left out {count} attributes of the event {event.name}"
        if found := _cut(event.attributes):
            return f"{found}, of the event {event.name}"
    return ""


def _dropped(count: int, attributes: Mapping[str, Any], name: str) -> int:
    """How many were left out, by the record's field or, of imported spans, by an attribute."""
    noted = attributes.get(name)
    return count or (noted if type(noted) is int and noted > 0 else 0)


def _cut(attributes: Mapping[str, Any]) -> str:
    for names, begins in ((_ASKED, _BEGINS), (_ANSWERED, _BEGINS_OF_ANSWERS)):
        for name in names:
            value = attributes.get(name)
            if isinstance(value, str) and value.lstrip().startswith(begins) and parse_json(value) is None:
                return f"{name} is cut: it begins as JSON, and does not end so"
    return ""


def _gap(attributes: Mapping[str, Any]) -> str:
    """Attributes that are numbered, as ``gen_ai.prompt.0.role`` is, and some numbers are missing."""
    numbers: dict[str, set[int]] = {}
    for prefix, number in _numbers(attributes):
        numbers.setdefault(prefix, set()).add(number)
    for prefix, found in numbers.items():
        if len(found) <= max(found):
            return f"{len(found)} of {max(found) + 1} messages under {prefix.removesuffix('.')} are there"
    return ""


def _numbers(attributes: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for name in attributes:
        for prefix in _NUMBERED:
            if name.startswith(prefix):
                number = name[len(prefix) :].partition(".")[0]
                if number.isascii() and number.isdecimal() and len(number) <= 6:
                    yield prefix, int(number)
                break
