"""OTLP requests in protobuf to records. Pure.

Source: opentelemetry-proto 1.x, ``trace.proto``, ``logs.proto``, ``common.proto``, ``resource.proto``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from google.protobuf.message import DecodeError as WireError

from lightstream.schemas.codec.convert import constructed
from lightstream.schemas.errors import DecodeError
from lightstream.schemas.records import SpanEventRecord, SpanKind, SpanLinkRecord, SpanStatus

from ...attribution import UNATTRIBUTED, Attribution
from ._deferred_arrays import DeferredArrays, MalformedArrayError
from ._protobuf_fields import (
    ExportLogsRequest,
    ExportTraceRequest,
    attributes_of,
    has_fields_of_another_kind,
    list_of,
    text,
    value_of,
)
from ._records import (
    KINDS,
    STATUSES,
    Decoded,
    LogFields,
    Origin,
    OtherSignalError,
    fault_of_ids,
    fault_of_times,
    keep_log,
    keep_span,
    origin_of,
    require_items_max,
)

_DeferredSpan: TypeAlias = tuple[Origin, dict[str, Any], dict[str, Any]]
"""Origin, fields, attributes; until the arrays among the attributes are filled in."""

_Take: TypeAlias = Callable[[Decoded, Origin, Any], None]


def decode_traces(body: bytes, fallback: Attribution = UNATTRIBUTED) -> Decoded:
    """The spans of an ``ExportTraceServiceRequest`` (or ``TracesData``, which is the same on the wire).

    Args:
        fallback: attribution of the request itself; spans and resources that name another go first.

    Raises:
        DecodeError: it is not such a message; nothing of it may be taken.
    """
    request = _parsed(ExportTraceRequest, body, "traces")
    try:
        return _decoded_spans(request, fallback, DeferredArrays(list_of))
    except MalformedArrayError:
        return _decoded_spans(request, fallback, None)  # tells whose it is


def decode_logs(body: bytes, fallback: Attribution = UNATTRIBUTED) -> Decoded:
    """As :func:`decode_traces`, for an ``ExportLogsServiceRequest`` (or ``LogsData``): log records as spans.

    Raises:
        DecodeError: it is not such a message; nothing of it may be taken.
    """
    decoded = Decoded()
    request = _parsed(ExportLogsRequest, body, "logs")
    scopes = (scope for resource in request.resource_logs for scope in resource.scope_logs)
    require_items_max(sum(len(scope.log_records) for scope in scopes))
    for resource_logs in request.resource_logs:
        for scope_logs in resource_logs.scope_logs:
            _take_all(decoded, resource_logs, scope_logs, scope_logs.log_records, fallback, _take_log)
    return decoded


def _decoded_spans(request: Any, fallback: Attribution, deferred: DeferredArrays | None) -> Decoded:
    require_items_max(sum(len(scope.spans) for resource in request.resource_spans for scope in resource.scope_spans))
    decoded = Decoded()
    buffered: list[_DeferredSpan] = []

    def take(decoded: Decoded, origin: Origin, span: Any) -> None:
        fields = _fields_of(decoded, span, deferred)
        if fields is not None:
            buffered.append((origin, fields, attributes_of(span.attributes, deferred)))

    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            _take_all(decoded, resource_spans, scope_spans, scope_spans.spans, fallback, take)
    if deferred is not None:
        deferred.fill()
    for origin, fields, attributes in buffered:
        keep_span(decoded, origin, fields, attributes)
    return decoded


def _take_all(
    decoded: Decoded, of_resource: Any, of_scope: Any, items: Iterable[Any], fallback: Attribution, take: _Take
) -> None:
    """Take the items of a scope; an item that cannot be read is rejected by itself."""
    try:
        origin = _origin(of_resource, of_scope, fallback)
    except DecodeError as error:
        for item in items:
            decoded.reject(error.message, item.SerializeToString())
        return
    for item in items:
        try:
            take(decoded, origin, item)
        except OtherSignalError:
            raise
        except DecodeError as error:
            decoded.reject(error.message, item.SerializeToString())


def _parsed(message: Any, body: bytes, signal: str) -> Any:
    try:
        parsed = message.FromString(body)
    except WireError as error:
        raise DecodeError(f"the body of {len(body):,} bytes is not an OTLP {signal} request: {error}") from error
    if has_fields_of_another_kind(parsed):
        raise DecodeError(f"the body of {len(body):,} bytes is not an OTLP {signal} request.")
    return parsed


def _origin(of_resource: Any, of_scope: Any, fallback: Attribution) -> Origin:
    resource, scope = of_resource.resource, of_scope.scope
    return origin_of(
        fallback,
        resource_attributes=attributes_of(resource.attributes),
        resource_dropped=resource.dropped_attributes_count,
        resource_schema_url=text(of_resource.schema_url),
        scope_name=text(scope.name),
        scope_version=text(scope.version),
        scope_schema_url=text(of_scope.schema_url),
        scope_attributes=attributes_of(scope.attributes),
    )


def _fields_of(decoded: Decoded, span: Any, deferred: DeferredArrays | None) -> dict[str, Any] | None:
    """The fields of its record but for its attributes, or ``None`` if the span was rejected."""
    fault = fault_of_ids(span.trace_id, span.span_id) or fault_of_times(
        span.start_time_unix_nano, span.end_time_unix_nano
    )
    if fault is not None:
        if has_fields_of_another_kind(span):
            raise OtherSignalError("an item among the spans is not a span; is the request for another signal?")
        decoded.reject(fault, span.SerializeToString())
        return None
    kind, status = span.kind, span.status
    return {
        "trace_id": span.trace_id.hex(),
        "span_id": span.span_id.hex(),
        "parent_id": span.parent_span_id.hex() if any(span.parent_span_id) else None,
        "name": text(span.name),
        "kind": KINDS[kind] if 0 <= kind < len(KINDS) else SpanKind.UNKNOWN,
        "status": STATUSES[status.code] if 0 <= status.code < len(STATUSES) else SpanStatus.UNKNOWN,
        "status_message": text(status.message),
        "start_unix_nano": span.start_time_unix_nano,
        "end_unix_nano": span.end_time_unix_nano,
        "events": [_event(event, deferred) for event in span.events],
        "links": [_link(link, deferred) for link in span.links],
        "trace_state": text(span.trace_state),
        "flags": span.flags,
        "dropped_attributes_count": span.dropped_attributes_count,
        "dropped_events_count": span.dropped_events_count,
        "dropped_links_count": span.dropped_links_count,
    }


def _event(event: Any, deferred: DeferredArrays | None) -> SpanEventRecord:
    values = {
        "name": text(event.name),
        "time_unix_nano": event.time_unix_nano,
        "attributes": attributes_of(event.attributes, deferred),
        "dropped_attributes_count": event.dropped_attributes_count,
    }
    return constructed(SpanEventRecord, values)


def _link(link: Any, deferred: DeferredArrays | None) -> SpanLinkRecord:
    values = {
        "trace_id": link.trace_id.hex(),
        "span_id": link.span_id.hex(),
        "trace_state": text(link.trace_state),
        "attributes": attributes_of(link.attributes, deferred),
        "dropped_attributes_count": link.dropped_attributes_count,
        "flags": link.flags,
    }
    return constructed(SpanLinkRecord, values)


def _take_log(decoded: Decoded, origin: Origin, log: Any) -> None:
    if not log.time_unix_nano and not log.observed_time_unix_nano and has_fields_of_another_kind(log):
        raise OtherSignalError("an item among the log records is not one; is the request for another signal?")
    fields = LogFields(
        trace_id=log.trace_id,
        span_id=log.span_id,
        time_unix_nano=log.time_unix_nano,
        observed_unix_nano=log.observed_time_unix_nano,
        severity_number=log.severity_number,
        severity_text=text(log.severity_text),
        event_name=text(log.event_name),
        body=value_of(log.body),
        flags=log.flags,
        dropped_attributes_count=log.dropped_attributes_count,
    )
    keep_log(decoded, origin, fields, attributes_of(log.attributes), log.SerializeToString())
