"""Between a span as its users see it and its record in the log."""

from __future__ import annotations

from typing import Any

from pydantic_core import to_json as quick_to_json

from lightstream.schemas.llm_attributes import attributes_of_call
from lightstream.schemas.packing import unpack_float32, unpack_int32
from lightstream.schemas.records import SpanEventRecord, SpanLinkRecord, SpanRecord, SpanStatus
from lightstream.schemas.types import Event, Link, OtelResource, Span, SpanContext, TraceStatus

from ..json_text import from_json, to_json
from ..times import nanos, seconds

REST = "lightstream.span"
"""Attribute that carries, as JSON, what a record has no field for: contexts out of the ordinary, extra fields."""

LLM = "llm_"
"""Prefix of the columns that hold a record's ``llm_call``."""

_CODES: dict[str, SpanStatus] = {"UNSET": SpanStatus.UNSET, "OK": SpanStatus.OK, "ERROR": SpanStatus.ERROR}


def span_record(span: Span) -> SpanRecord:
    """The record of a span. What does not fit is kept in an attribute."""
    attributes = dict(span.attributes)
    if rest := _rest(span):
        attributes[REST] = to_json("span", rest)
    return SpanRecord(
        rollout_id=span.rollout_id,
        attempt_id=span.attempt_id,
        sequence_id=span.sequence_id,
        trace_id=span.trace_id,
        span_id=span.span_id,
        parent_id=span.parent_id,
        name=span.name,
        status=_CODES[span.status.status_code],
        status_message=span.status.description or "",
        start_unix_nano=_nanos("start_time", span.start_time),
        end_unix_nano=_nanos("end_time", span.end_time),
        attributes=attributes,
        events=[
            SpanEventRecord(
                name=event.name, time_unix_nano=_nanos("timestamp", event.timestamp), attributes=event.attributes
            )
            for event in span.events
        ],
        links=[
            SpanLinkRecord(
                trace_id=link.context.trace_id, span_id=link.context.span_id, attributes=link.attributes or {}
            )
            for link in span.links
        ],
        resource_attributes=span.resource.attributes,
        resource_schema_url=span.resource.schema_url,
    )


def span_of_record(record: SpanRecord) -> Span:
    """A span from its record, as :func:`span_of_row` tells it once the record is in the view."""
    row = record.model_dump(exclude={"llm_call"}) | {"status": record.status.value, f"{LLM}choice_index": None}
    if record.llm_call is not None:
        call = record.llm_call.model_dump()
        for name in ("prompt_token_ids", "response_token_ids", "response_token_ends"):
            call[name] = None if call[name] is None else list(unpack_int32(call[name]))
        logprobs = record.llm_call.response_logprobs
        call["response_logprobs"] = None if logprobs is None else list(unpack_float32(logprobs))
        row |= {f"{LLM}{name}": value for name, value in call.items()}
    return span_of_row(row)


def span_of_row(row: dict[str, Any]) -> Span:
    """A span from a row of the view ``spans``: attributes, events, links and resource attributes as JSON text.

    What the record says of an LLM call (the proxy's token ids) is among the attributes.
    """
    attributes = _loaded(row["attributes"])
    if row["llm_choice_index"] is not None:
        call = {name.removeprefix(LLM): value for name, value in row.items() if name.startswith(LLM)}
        attributes |= attributes_of_call(call)
    rest = _loaded(attributes.pop(REST, None) or "{}")
    fields: dict[str, Any] = {
        "rollout_id": row["rollout_id"] or "",
        "attempt_id": row["attempt_id"] or "",
        "sequence_id": row["sequence_id"],
        "trace_id": row["trace_id"],
        "span_id": row["span_id"],
        "parent_id": row["parent_id"],
        "name": row["name"],
        "status": TraceStatus.model_validate(
            {"status_code": (row["status"] or "unset").upper(), "description": row["status_message"] or None}
        ),
        "attributes": attributes,
        "events": [
            Event(name=event["name"], attributes=event["attributes"], timestamp=_seconds(event["time_unix_nano"]))
            for event in _loaded(row["events"])
        ],
        "links": [
            Link(context=_context(link["trace_id"], link["span_id"]), attributes=link["attributes"] or None)
            for link in _loaded(row["links"])
        ],
        "start_time": _seconds(row["start_unix_nano"]),
        "end_time": _seconds(row["end_unix_nano"]),
        "context": _context(row["trace_id"], row["span_id"]),
        "parent": _context(row["trace_id"], row["parent_id"]) if row["parent_id"] else None,
        "resource": OtelResource(
            attributes=_loaded(row["resource_attributes"]), schema_url=row["resource_schema_url"] or ""
        ),
    }
    fields["attributes"] |= rest.pop("attributes", {})
    return Span.model_validate(fields | rest)


def _rest(span: Span) -> dict[str, Any]:
    """The fields that :func:`span_of_row` could not make up again."""
    rest: dict[str, Any] = dict(span.model_extra or {})
    if span.context != _context(span.trace_id, span.span_id):
        rest["context"] = span.context
    if span.parent != (_context(span.trace_id, span.parent_id) if span.parent_id else None):
        rest["parent"] = span.parent
    if span.links and any(link.context.is_remote or link.context.trace_state for link in span.links):
        rest["links"] = span.links
    rest |= _infinite(span)
    if span.status.model_extra:
        rest["status"] = span.status
    if span.resource.model_extra:
        rest["resource"] = span.resource
    return rest


def _infinite(span: Span) -> dict[str, Any]:
    """The fields with numbers that strict JSON, as in the view's columns, cannot hold: they would come back as text."""
    found: dict[str, Any] = {}
    if _is_infinite(span.attributes):
        found["attributes"] = {name: value for name, value in span.attributes.items() if _is_infinite(value)}
    if any(_is_infinite(event.attributes) for event in span.events):
        found["events"] = span.events
    if any(link.attributes and _is_infinite(link.attributes) for link in span.links):
        found["links"] = span.links
    if _is_infinite(span.resource.attributes):
        found["resource"] = span.resource
    return found


def _is_infinite(value: Any) -> bool:
    """Whether a number in it is infinite or NaN; text with such a word in it counts too, which costs only space."""
    try:
        text = quick_to_json(value, inf_nan_mode="constants", bytes_mode="base64", fallback=repr)
    except ValueError:  # it is refused elsewhere
        return False
    return b"Infinity" in text or b"NaN" in text


def _context(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(trace_id=trace_id, span_id=span_id, is_remote=False, trace_state={})


def _loaded(value: Any) -> Any:
    return from_json(value) if isinstance(value, str) else value


def _nanos(what: str, value: float | None) -> int:
    """With 0 for a time that is not known, as in OpenTelemetry."""
    return 0 if value is None else nanos(what, value)


def _seconds(unix_nano: int | None) -> float | None:
    return seconds(unix_nano or None)
