"""OTLP requests in JSON to records. Pure.

Source: OTLP specification, "JSON Protobuf Encoding": ids in hex (either case), enums as numbers, lowerCamelCase names,
64-bit integers as text or numbers, unknown fields ignored. A field of a wrong type makes the whole request undecodable.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pydantic_core import from_json, to_json

from lightstream.schemas.codec.convert import constructed
from lightstream.schemas.errors import DecodeError
from lightstream.schemas.records import SpanEventRecord, SpanKind, SpanLinkRecord, SpanStatus

from ...ownership import NOBODY, Owner
from ._json_fields import attributes_in, identifier_in, integer_in, list_in, object_in, text_in, value_in
from ._log import LogFields, keep_log
from ._model import Decoded, Origin
from ._origin import origin_of
from ._span import KINDS, STATUSES, fault_of_ids, fault_of_times, keep_span

__all__ = ["decode_logs", "decode_traces"]

ELSEWHERE = ("resourceSpans", "resourceLogs", "resourceMetrics", "resource_spans", "resource_logs")


def decode_traces(body: bytes, elsewhere: Owner = NOBODY) -> Decoded:
    """As the function of that name for protobuf.

    Raises:
        DecodeError: it is not such a message; nothing of it may be taken.
    """
    decoded = Decoded()
    for origin, span in _items(body, ("resourceSpans", "scopeSpans", "spans"), elsewhere):
        _take_span(decoded, origin, span)
    return decoded


def decode_logs(body: bytes, elsewhere: Owner = NOBODY) -> Decoded:
    """As the function of that name for protobuf.

    Raises:
        DecodeError: it is not such a message; nothing of it may be taken.
    """
    decoded = Decoded()
    for origin, log in _items(body, ("resourceLogs", "scopeLogs", "logRecords"), elsewhere):
        _take_log(decoded, origin, log)
    return decoded


def _items(body: bytes, levels: tuple[str, str, str], elsewhere: Owner) -> Iterator[tuple[Origin, Any]]:
    """Spans or logs with where they come from; ``levels`` names the lists of resources, of scopes and of items."""
    of_resources, of_scopes, of_items = levels
    for resource in _resources(body, of_resources):
        for scope in list_in(resource, of_scopes):
            origin = _origin(resource, scope, elsewhere)
            for item in list_in(scope, of_items):
                yield origin, item


def _resources(body: bytes, name: str) -> list[Any]:
    """The array ``name`` of a request. One of another signal, or its own in snake case, would come to nothing."""
    document = _parsed(body)
    resources = list_in(document, name)
    other = next((other for other in ELSEWHERE if other in document), None)
    if not resources and other is not None and other != name:
        raise DecodeError(f"the request has {other!r}; expected {name!r}.")
    return resources


def _parsed(body: bytes) -> Any:
    if not body:
        return {}
    try:
        return from_json(body)
    except ValueError:
        pass
    try:  # slower, and knows lone surrogates: JavaScript writes them where a text was cut within a character
        return json.loads(body.decode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"the body of {len(body):,} bytes is not valid JSON: {error}") from error


def _origin(of_resource: Any, of_scope: Any, elsewhere: Owner) -> Origin:
    resource, scope = object_in(of_resource, "resource"), object_in(of_scope, "scope")
    return origin_of(
        elsewhere,
        resource_attributes=attributes_in(resource),
        resource_dropped=integer_in(resource, "droppedAttributesCount"),
        resource_schema_url=text_in(of_resource, "schemaUrl"),
        scope_name=text_in(scope, "name"),
        scope_version=text_in(scope, "version"),
        scope_schema_url=text_in(of_scope, "schemaUrl"),
        scope_attributes=attributes_in(scope),
    )


def _take_span(decoded: Decoded, origin: Origin, span: Any) -> None:
    trace_id, span_id = identifier_in(span, "traceId"), identifier_in(span, "spanId")
    start, end = integer_in(span, "startTimeUnixNano"), integer_in(span, "endTimeUnixNano")
    parent_id = identifier_in(span, "parentSpanId")
    fault = fault_of_ids(trace_id, span_id) or fault_of_times(start, end)
    if fault is not None:
        decoded.reject(fault, _bytes(span))
        return
    kind, status = integer_in(span, "kind"), object_in(span, "status")
    code = integer_in(status, "code")
    values: dict[str, Any] = {
        "trace_id": trace_id.hex(),
        "span_id": span_id.hex(),
        "parent_id": parent_id.hex() if any(parent_id) else None,
        "name": text_in(span, "name"),
        "kind": KINDS[kind] if 0 <= kind < len(KINDS) else SpanKind.UNKNOWN,
        "status": STATUSES[code] if 0 <= code < len(STATUSES) else SpanStatus.UNKNOWN,
        "status_message": text_in(status, "message"),
        "start_unix_nano": start,
        "end_unix_nano": end,
        "events": [_event(event) for event in list_in(span, "events")],
        "links": [_link(link) for link in list_in(span, "links")],
        "trace_state": text_in(span, "traceState"),
        "flags": integer_in(span, "flags"),
        "dropped_attributes_count": integer_in(span, "droppedAttributesCount"),
        "dropped_events_count": integer_in(span, "droppedEventsCount"),
        "dropped_links_count": integer_in(span, "droppedLinksCount"),
    }
    keep_span(decoded, origin, values, attributes_in(span))


def _event(event: Any) -> SpanEventRecord:
    values = {
        "name": text_in(event, "name"),
        "time_unix_nano": integer_in(event, "timeUnixNano"),
        "attributes": attributes_in(event),
        "dropped_attributes_count": integer_in(event, "droppedAttributesCount"),
    }
    return constructed(SpanEventRecord, values)


def _link(link: Any) -> SpanLinkRecord:
    values = {
        "trace_id": identifier_in(link, "traceId").hex(),
        "span_id": identifier_in(link, "spanId").hex(),
        "trace_state": text_in(link, "traceState"),
        "attributes": attributes_in(link),
        "dropped_attributes_count": integer_in(link, "droppedAttributesCount"),
        "flags": integer_in(link, "flags"),
    }
    return constructed(SpanLinkRecord, values)


def _take_log(decoded: Decoded, origin: Origin, log: Any) -> None:
    fields = LogFields(
        trace_id=identifier_in(log, "traceId"),
        span_id=identifier_in(log, "spanId"),
        time_unix_nano=integer_in(log, "timeUnixNano"),
        observed_unix_nano=integer_in(log, "observedTimeUnixNano"),
        severity_number=integer_in(log, "severityNumber"),
        severity_text=text_in(log, "severityText"),
        event_name=text_in(log, "eventName"),
        body=value_in(object_in(log, "body")),
        flags=integer_in(log, "flags"),
        dropped_attributes_count=integer_in(log, "droppedAttributesCount"),
    )
    keep_log(decoded, origin, fields, attributes_in(log), _bytes(log))


def _bytes(item: Any) -> bytes:
    """An item for a dead letter, and for its hash."""
    return to_json(item, inf_nan_mode="strings")
