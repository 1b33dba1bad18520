"""Spans."""

from __future__ import annotations

from lightstream.schemas.types import (
    Attributes,
    AttributeValue,
    Event,
    Link,
    OtelResource,
    Span,
    SpanContext,
    SpanCoreFields,
    SpanLike,
    SpanRecordingContext,
    StatusCode,
    TraceState,
    TraceStatus,
)

__all__ = [
    "AttributeValue",
    "Attributes",
    "Event",
    "Link",
    "OtelResource",
    "Span",
    "SpanContext",
    "SpanCoreFields",
    "SpanLike",
    "SpanRecordingContext",
    "StatusCode",
    "TraceState",
    "TraceStatus",
]
