"""Spans, made of data by either package."""

from __future__ import annotations

import importlib
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, TraceFlags


def span(package: Any, **fields: Any) -> Any:
    """The interface's ``Span`` with these fields: ended well, with neither events nor links."""
    return package.Span(
        **fields,
        status=importlib.import_module(f"{package.__name__}.types").TraceStatus(status_code="OK"),
        events=[],
        links=[],
        context=None,
        parent=None,
        resource=package.OtelResource(attributes={}, schema_url=""),
    )


def readable_span(trace_id: int, span_id: int, name: str, attributes: dict[str, Any]) -> ReadableSpan:
    """OpenTelemetry's own, without a parent, from second 1 to second 2."""
    context = SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    resource = Resource({"service.name": "tests"})
    return ReadableSpan(name, context, None, resource, attributes, start_time=10**9, end_time=2 * 10**9)
