"""OTLP requests in JSON to records. Pure.

Source: OTLP specification, "JSON Protobuf Encoding": ids in hex (either case), enums as numbers, lowerCamelCase names,
64-bit integers as text or numbers, unknown fields ignored. An item with a field of a wrong type is rejected by itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from pydantic_core import from_json, to_json

from lightstream.schemas.codec.convert import constructed
from lightstream.schemas.errors import DecodeError
from lightstream.schemas.records import SpanEventRecord, SpanKind, SpanLinkRecord, SpanStatus

from ...attribution import UNATTRIBUTED, Attribution
from ._json_fields import attributes_in, cut_to_depth, identifier_in, integer_in, list_in, object_in, text_in, value_in
from ._records import (
    KINDS,
    STATUSES,
    Decoded,
    LogFields,
    Origin,
    fault_of_ids,
    fault_of_times,
    keep_log,
    keep_span,
    origin_of,
    require_items_max,
)

ELSEWHERE = ("resourceSpans", "resourceLogs", "resourceMetrics", "resource_spans", "resource_logs")

INTEGER_DIGITS_MAX = 1000
"""Well beyond what any field takes."""


def decode_traces(body: bytes, fallback: Attribution = UNATTRIBUTED) -> Decoded:
    """As the function of that name for protobuf.

    Raises:
        DecodeError: it is not such a message; nothing of it may be taken.
    """
    return _decoded(body, ("resourceSpans", "scopeSpans", "spans"), fallback, _take_span)


def decode_logs(body: bytes, fallback: Attribution = UNATTRIBUTED) -> Decoded:
    """As the function of that name for protobuf.

    Raises:
        DecodeError: it is not such a message; nothing of it may be taken.
    """
    return _decoded(body, ("resourceLogs", "scopeLogs", "logRecords"), fallback, _take_log)


def _decoded(
    body: bytes, levels: tuple[str, str, str], fallback: Attribution, take: Callable[[Decoded, Origin, Any], None]
) -> Decoded:
    """Pass each item to ``take``; ``levels`` names the lists of resources, of scopes and of items."""
    of_resources, of_scopes, of_items = levels
    decoded = Decoded()
    resources = _resources(body, of_resources)
    scopes = (scope for resource in resources for scope in list_in(resource, of_scopes))
    require_items_max(sum(len(list_in(scope, of_items)) for scope in scopes))
    for resource in resources:
        for scope in list_in(resource, of_scopes):
            items = list_in(scope, of_items)
            try:
                origin = _origin(resource, scope, fallback)
            except DecodeError as error:
                for item in items:
                    decoded.reject(error.message, _bytes(item))
                continue
            for item in items:
                try:
                    take(decoded, origin, item)
                except DecodeError as error:
                    decoded.reject(error.message, _bytes(item))
    return decoded


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
    text = body.decode("utf-8", "replace")
    try:  # slower, and knows lone surrogates: JavaScript writes them where a text was cut within a character
        try:
            return json.loads(text, parse_int=_integer)
        except RecursionError:
            return json.loads(cut_to_depth(text), parse_int=_integer)
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"the body of {len(body):,} bytes is not valid JSON: {error}") from error


def _integer(digits: str) -> int | Decimal:
    """Python refuses to read integers of thousands of digits. No field takes a ``Decimal``."""
    return int(digits) if len(digits) <= INTEGER_DIGITS_MAX else Decimal(digits)


def _origin(of_resource: Any, of_scope: Any, fallback: Attribution) -> Origin:
    resource, scope = object_in(of_resource, "resource"), object_in(of_scope, "scope")
    return origin_of(
        fallback,
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
    try:
        return to_json(item, inf_nan_mode="strings")
    except ValueError:  # a lone surrogate, or nested deeply
        return json.dumps(item, default=str).encode()
