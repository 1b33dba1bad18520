"""``agentlightning.types.tracer``: spans."""

from __future__ import annotations

from enum import Enum

from lightstream.producers import semconv
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
    "SpanAttributeNames",
    "SpanContext",
    "SpanCoreFields",
    "SpanLike",
    "SpanNames",
    "SpanRecordingContext",
    "StatusCode",
    "TraceState",
    "TraceStatus",
]


class SpanNames(str, Enum):  # noqa: UP042  # str() gives its name, as there
    """Names from before ``semconv``."""

    REWARD = semconv.AGL_REWARD
    MESSAGE = semconv.AGL_MESSAGE
    OBJECT = semconv.AGL_OBJECT
    EXCEPTION = semconv.AGL_EXCEPTION
    VIRTUAL = semconv.AGL_VIRTUAL
    ROLLOUT_ID = semconv.AGL_ROLLOUT_ID
    ATTEMPT_ID = semconv.AGL_ATTEMPT_ID
    SPAN_SEQUENCE_ID = semconv.AGL_SPAN_SEQUENCE_ID


class SpanAttributeNames(str, Enum):  # noqa: UP042  # str() gives its name, as there
    """Names from before ``semconv``."""

    MESSAGE = "message"
    OBJECT = "object"
