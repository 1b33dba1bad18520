"""OTLP as JSON: ``ExportTraceServiceRequest`` or ``TracesData``, as collectors write files; or its spans alone."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lightstream.schemas.types import Event, Link, OtelResource, Span, SpanContext

from .trace import SPAN_DIGITS, TRACE_DIGITS, is_list, is_map, made_span, seconds

__all__ = ["is_otlp", "is_otlp_span", "otlp_spans"]

DEPTH_MAX = 64
"""Deeper values become text: no convention nests its attributes so."""
ERROR_CODES = (2, "2", "STATUS_CODE_ERROR")


def is_otlp(document: Any) -> bool:
    """Whether a document has ``resourceSpans``, or is a span in OTLP's terms (as Phoenix gives them)."""
    return is_otlp_span(document) or (is_map(document) and _has(document, "resourceSpans", "resource_spans"))


def is_otlp_span(document: Any) -> bool:
    """Whether a document is a span in OTLP's terms, without what it stands in."""
    return (
        is_map(document)
        and _has(document, "spanId", "span_id")
        and _has(document, "startTimeUnixNano", "start_time_unix_nano")
    )


def otlp_spans(document: Mapping[str, Any]) -> Iterator[Span]:
    """The spans of a document, in its order. Unknown fields are ignored, as the specification asks."""
    if is_otlp_span(document):
        yield _span(document, OtelResource(attributes={}, schema_url=""))
    for resource_spans in _items(document, "resourceSpans", "resource_spans"):
        resource = resource_spans.get("resource") or {}
        attributes = _attributes(resource.get("attributes"))
        for scope_spans in _items(resource_spans, "scopeSpans", "scope_spans", "instrumentationLibrarySpans"):
            for span in _items(scope_spans, "spans"):
                yield _span(span, OtelResource(attributes=attributes, schema_url=resource_spans.get("schemaUrl") or ""))


def _span(value: Mapping[str, Any], resource: OtelResource) -> Span:
    trace_id = _id(_first(value, "traceId", "trace_id"), TRACE_DIGITS)
    status = value.get("status") or {}
    failed = status.get("code") in ERROR_CODES
    span = made_span(
        trace_id,
        _id(_first(value, "spanId", "span_id"), SPAN_DIGITS),
        _id(_first(value, "parentSpanId", "parent_span_id"), SPAN_DIGITS) or None,
        str(value.get("name") or ""),
        _attributes(value.get("attributes")),
        start=_first(value, "startTimeUnixNano", "start_time_unix_nano"),
        end=_first(value, "endTimeUnixNano", "end_time_unix_nano"),
        error=str(status.get("message") or "") if failed else None,
    )
    span.resource = resource
    span.events = [
        Event(
            name=str(event.get("name") or ""),
            attributes=_attributes(event.get("attributes")),
            timestamp=seconds(_first(event, "timeUnixNano", "time_unix_nano")),
        )
        for event in _items(value, "events")
    ]
    span.links = [
        Link(
            context=SpanContext(
                trace_id=_id(_first(link, "traceId", "trace_id"), TRACE_DIGITS),
                span_id=_id(_first(link, "spanId", "span_id"), SPAN_DIGITS),
                is_remote=False,
                trace_state={},
            ),
            attributes=_attributes(link.get("attributes")),
        )
        for link in _items(value, "links")
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


def _attributes(values: object) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if isinstance(values, list):
        for item in values:
            if isinstance(item, dict) and isinstance(item.get("key"), str):
                found[item["key"]] = _value(item.get("value"), 0)
    return found


def _value(value: Any, depth: int) -> Any:
    """An AnyValue as plain Python. 64-bit integers come as text; what is not of its kind stays as it is."""
    if not isinstance(value, dict) or not value:
        return None
    kind, content = next(((k, v) for k, v in value.items() if v is not None), ("", None))  # some write all kinds
    if depth > DEPTH_MAX:
        return str(content)
    if kind in ("arrayValue", "array_value"):
        return [_value(item, depth + 1) for item in _items(content, "values")]
    if kind in ("kvlistValue", "kvlist_value"):
        return {str(item.get("key")): _value(item.get("value"), depth + 1) for item in _items(content, "values")}
    convert = _SCALARS.get(kind)
    try:
        return content if convert is None else convert(content)
    except (TypeError, ValueError):
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


def _items(value: Any, *names: str) -> list[Any]:
    found = _first(value, *names) if is_map(value) else None
    return [item for item in found if is_map(item)] if found is not None and is_list(found) else []


def _first(value: Mapping[str, Any], *names: str) -> Any:
    return next((value[name] for name in names if name in value), None)
