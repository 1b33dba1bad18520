"""OTLP as JSON: ``ExportTraceServiceRequest`` or ``TracesData``, as collectors write files; or its spans alone."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any

from lightstream.schemas.attribute_names import DROPPED_ATTRIBUTES, DROPPED_EVENTS
from lightstream.schemas.types import Event, Link, OtelResource, Span, SpanContext
from lightstream.stream_processors.core.dialects import is_list, is_map

from .json_parts import map_in, maps_in
from .trace import SPAN_DIGITS, TRACE_DIGITS, made_span, seconds

DEPTH_MAX = 64
"""Deeper values become text: no convention nests its attributes so."""
ERROR_CODES = (2, "2", "STATUS_CODE_ERROR")


def is_otlp(document: Any) -> bool:
    """Whether a document has ``resourceSpans``, or is a span in OTLP's terms (as Phoenix gives them)."""
    return is_otlp_span(document) or (is_map(document) and _has(document, "resourceSpans", "resource_spans"))


def is_otlp_span(document: Any) -> bool:
    """Whether a document is a span in OTLP's terms, without its envelope."""
    return (
        is_map(document)
        and _has(document, "spanId", "span_id")
        and _has(document, "startTimeUnixNano", "start_time_unix_nano")
    )


def otlp_spans(document: Mapping[str, Any]) -> list[Span]:
    """The spans of a document, in its order. Unknown fields are ignored, as the specification asks.

    Raises:
        SettingsError: a part of it is of another type than the specification says.
    """
    spans: list[Span] = []
    if is_otlp_span(document):
        spans.append(_span(document, OtelResource(attributes={}, schema_url=""), "the span"))
    for resource_spans in _maps(document, "the document", "resourceSpans", "resource_spans"):
        attributes = _attributes(map_in(resource_spans, "resource", "'resourceSpans'"), "'resource'")
        resource = OtelResource(attributes=attributes, schema_url=str(resource_spans.get("schemaUrl") or ""))
        for scope_spans in _maps(resource_spans, "'resourceSpans'", *_SCOPE_SPANS):
            for span in maps_in(scope_spans, "spans", "'scopeSpans'"):
                spans.append(_span(span, resource, f"span {len(spans) + 1}"))
    return spans


_SCOPE_SPANS = ("scopeSpans", "scope_spans", "instrumentationLibrarySpans")


def _span(value: Mapping[str, Any], resource: OtelResource, where: str) -> Span:
    trace_id = _id(_first(value, "traceId", "trace_id"), TRACE_DIGITS)
    status = map_in(value, "status", where)
    failed = status.get("code") in ERROR_CODES
    span = made_span(
        trace_id,
        _id(_first(value, "spanId", "span_id"), SPAN_DIGITS),
        _id(_first(value, "parentSpanId", "parent_span_id"), SPAN_DIGITS) or None,
        str(value.get("name") or ""),
        _attributes(value, where) | _dropped(value),
        start=_first(value, "startTimeUnixNano", "start_time_unix_nano"),
        end=_first(value, "endTimeUnixNano", "end_time_unix_nano"),
        error=str(status.get("message") or "") if failed else None,
    )
    span.resource = resource
    span.events = [
        Event(
            name=str(event.get("name") or ""),
            attributes=_attributes(event, f"an event of {where}") | _dropped(event),
            timestamp=seconds(_first(event, "timeUnixNano", "time_unix_nano")),
        )
        for event in maps_in(value, "events", where)
    ]
    span.links = [
        Link(
            context=SpanContext(
                trace_id=_id(_first(link, "traceId", "trace_id"), TRACE_DIGITS),
                span_id=_id(_first(link, "spanId", "span_id"), SPAN_DIGITS),
                is_remote=False,
                trace_state={},
            ),
            attributes=_attributes(link, f"a link of {where}"),
        )
        for link in maps_in(value, "links", where)
    ]
    return span


def _id(value: object, digits: int) -> str:
    """Hex as OTLP's JSON has it, or base64 as protobuf's own JSON has it; empty for none."""
    text = str(value or "")
    if not text or len(text) == digits:
        return text.lower()
    try:
        return base64.b64decode(text, validate=True).hex()
    except (binascii.Error, ValueError):
        return text


def _attributes(holder: Mapping[str, Any], where: str) -> dict[str, Any]:
    return {_key(item): _value(item.get("value"), 0) for item in maps_in(holder, "attributes", where)}


def _dropped(holder: Mapping[str, Any]) -> dict[str, Any]:
    """What the tracer left out, under OpenTelemetry's names for those who have no field for it."""
    counts: dict[str, Any] = {}
    for name, *spellings in _DROPPED:
        count = _first(holder, *spellings)
        if isinstance(count, int | str) and str(count).isdecimal() and int(count) > 0:
            counts[name] = int(count)
    return counts


_DROPPED = (
    (DROPPED_ATTRIBUTES, "droppedAttributesCount", "dropped_attributes_count"),
    (DROPPED_EVENTS, "droppedEventsCount", "dropped_events_count"),
)


def _key(item: Mapping[str, Any]) -> str:
    """Protobuf's JSON may leave out a text that is empty."""
    return str(item.get("key") or "")


def _value(value: Any, depth: int) -> Any:
    """An AnyValue as plain Python. 64-bit integers come as text; what is not of its kind stays as it is."""
    if not is_map(value):
        return value
    if not value:
        return None
    kind, content = next(((k, v) for k, v in value.items() if v is not None), ("", None))  # some write all kinds
    if depth > DEPTH_MAX:
        return str(content)
    values = content.get("values") or [] if is_map(content) else None
    if kind in ("arrayValue", "array_value"):
        return [_value(item, depth + 1) for item in values] if is_list(values) else content
    if kind in ("kvlistValue", "kvlist_value"):
        pairs = is_list(values) and all(map(is_map, values))
        return {_key(item): _value(item.get("value"), depth + 1) for item in values or ()} if pairs else content
    convert = _SCALARS.get(kind)
    try:
        return content if convert is None else convert(content)
    except (OverflowError, TypeError, ValueError):
        return content


_SCALARS: dict[str, Callable[[Any], Any]] = {
    "intValue": int,
    "int_value": int,
    "doubleValue": float,
    "double_value": float,
    "bytesValue": base64.b64decode,
    "bytes_value": base64.b64decode,
}


def _has(value: Mapping[str, Any], *names: str) -> bool:
    return any(name in value for name in names)


def _maps(value: Mapping[str, Any], where: str, *names: str) -> list[Mapping[str, Any]]:
    """The objects under the first of the spellings that is there."""
    return maps_in(value, next((name for name in names if name in value), names[0]), where)


def _first(value: Mapping[str, Any], *names: str) -> Any:
    return next((value[name] for name in names if name in value), None)
