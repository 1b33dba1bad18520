"""OTLP requests in protobuf to records. Pure.

Source: opentelemetry-proto 1.x, ``trace.proto``, ``logs.proto``, ``common.proto``, ``resource.proto``.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from google.protobuf.message import DecodeError as WireError

from lightstream.schemas.codec.convert import constructed
from lightstream.schemas.errors import DecodeError
from lightstream.schemas.records import SpanEventRecord, SpanKind, SpanLinkRecord, SpanStatus

from ...ownership import NOBODY, Owner
from ._any_value import attributes_of, list_of, text, value_of
from ._later import NumberArrays
from ._log import LogFields, keep_log
from ._messages import ExportLogsRequest, ExportTraceRequest, has_fields_of_another_kind
from ._model import Decoded, Origin
from ._origin import origin_of
from ._span import KINDS, STATUSES, fault_of_ids, fault_of_times, keep_span

__all__ = ["decode_logs", "decode_traces"]

_HeldSpan: TypeAlias = tuple[Origin, dict[str, Any], dict[str, Any]]
"""Origin, fields, attributes; until the arrays among the attributes are filled in."""


def decode_traces(body: bytes, elsewhere: Owner = NOBODY) -> Decoded:
    """The spans of an ``ExportTraceServiceRequest`` (or ``TracesData``, which is the same on the wire).

    Args:
        elsewhere: whom the request itself names; spans and resources that say otherwise go first.

    Raises:
        DecodeError: it is not such a message; nothing of it may be taken.
    """
    decoded = Decoded()
    later = NumberArrays(list_of)
    held: list[_HeldSpan] = []
    for resource_spans in _parsed(ExportTraceRequest, body, "traces").resource_spans:
        for scope_spans in resource_spans.scope_spans:
            origin = _origin(resource_spans, scope_spans, elsewhere)
            for span in scope_spans.spans:
                fields = _fields_of(decoded, span, later)
                if fields is not None:
                    held.append((origin, fields, attributes_of(span.attributes, later)))
    later.fill_in()
    for origin, fields, attributes in held:
        keep_span(decoded, origin, fields, attributes)
    return decoded


def decode_logs(body: bytes, elsewhere: Owner = NOBODY) -> Decoded:
    """As :func:`decode_traces`, for an ``ExportLogsServiceRequest`` (or ``LogsData``): log records as spans.

    Raises:
        DecodeError: it is not such a message; nothing of it may be taken.
    """
    decoded = Decoded()
    for resource_logs in _parsed(ExportLogsRequest, body, "logs").resource_logs:
        for scope_logs in resource_logs.scope_logs:
            origin = _origin(resource_logs, scope_logs, elsewhere)
            for log in scope_logs.log_records:
                _take_log(decoded, origin, log)
    return decoded


def _parsed(message: Any, body: bytes, signal: str) -> Any:
    try:
        parsed = message.FromString(body)
    except WireError as error:
        raise DecodeError(f"the body of {len(body):,} bytes is not an OTLP {signal} request: {error}") from error
    if has_fields_of_another_kind(parsed):
        raise DecodeError(f"the body of {len(body):,} bytes is not an OTLP {signal} request.")
    return parsed


def _origin(of_resource: Any, of_scope: Any, elsewhere: Owner) -> Origin:
    resource, scope = of_resource.resource, of_scope.scope
    return origin_of(
        elsewhere,
        resource_attributes=attributes_of(resource.attributes),
        resource_dropped=resource.dropped_attributes_count,
        resource_schema_url=text(of_resource.schema_url),
        scope_name=text(scope.name),
        scope_version=text(scope.version),
        scope_schema_url=text(of_scope.schema_url),
        scope_attributes=attributes_of(scope.attributes),
    )


def _fields_of(decoded: Decoded, span: Any, later: NumberArrays) -> dict[str, Any] | None:
    """The fields of its record but for its attributes, or ``None`` if the span was rejected."""
    fault = fault_of_ids(span.trace_id, span.span_id) or fault_of_times(
        span.start_time_unix_nano, span.end_time_unix_nano
    )
    if fault is not None:
        if has_fields_of_another_kind(span):
            raise DecodeError("an item among the spans is not a span; is the request for another signal?")
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
        "events": [_event(event, later) for event in span.events],
        "links": [_link(link, later) for link in span.links],
        "trace_state": text(span.trace_state),
        "flags": span.flags,
        "dropped_attributes_count": span.dropped_attributes_count,
        "dropped_events_count": span.dropped_events_count,
        "dropped_links_count": span.dropped_links_count,
    }


def _event(event: Any, later: NumberArrays) -> SpanEventRecord:
    values = {
        "name": text(event.name),
        "time_unix_nano": event.time_unix_nano,
        "attributes": attributes_of(event.attributes, later),
        "dropped_attributes_count": event.dropped_attributes_count,
    }
    return constructed(SpanEventRecord, values)


def _link(link: Any, later: NumberArrays) -> SpanLinkRecord:
    values = {
        "trace_id": link.trace_id.hex(),
        "span_id": link.span_id.hex(),
        "trace_state": text(link.trace_state),
        "attributes": attributes_of(link.attributes, later),
        "dropped_attributes_count": link.dropped_attributes_count,
        "flags": link.flags,
    }
    return constructed(SpanLinkRecord, values)


def _take_log(decoded: Decoded, origin: Origin, log: Any) -> None:
    if not log.time_unix_nano and not log.observed_time_unix_nano and has_fields_of_another_kind(log):
        raise DecodeError("an item among the log records is not one; is the request for another signal?")
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
