"""A span as the store keeps it."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Self, TypeAlias, Union

from pydantic import ConfigDict

from .json_model import JsonModel
from .span_core import SpanCoreFields
from .span_parts import (
    Attributes,
    Event,
    Link,
    OtelResource,
    SpanContext,
    TraceStatus,
    hex_span_id,
    hex_trace_id,
    plain,
    seconds_since_1970,
)

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

__all__ = ["VIRTUAL_SPAN_NAME", "Span", "SpanLike"]

VIRTUAL_SPAN_NAME = "agentlightning.virtual"
"""A span without an operation."""


class Span(JsonModel):
    """An ended span of one attempt (times in seconds since 1970, ids in lower-case hex).

    ``sequence_id`` orders the spans of an attempt. What else a writer knows is kept as extra fields.
    """

    model_config = ConfigDict(extra="allow")

    rollout_id: str
    attempt_id: str
    sequence_id: int
    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    status: TraceStatus
    attributes: Attributes
    events: list[Event]
    links: list[Link]
    start_time: float | None
    end_time: float | None
    context: SpanContext | None
    parent: SpanContext | None
    resource: OtelResource

    @classmethod
    def from_opentelemetry(cls, src: ReadableSpan, rollout_id: str, attempt_id: str, sequence_id: int) -> Self:
        """A span of the OpenTelemetry SDK, as one of this attempt. ``src`` is unchanged."""
        context, parent = src.get_span_context(), src.parent
        return cls(
            rollout_id=rollout_id,
            attempt_id=attempt_id,
            sequence_id=sequence_id,
            trace_id=hex_trace_id(context.trace_id if context else 0),
            span_id=hex_span_id(context.span_id if context else 0),
            parent_id=hex_span_id(parent.span_id) if parent else None,
            name=src.name,
            status=TraceStatus.from_opentelemetry(src.status),
            attributes=plain(src.attributes),
            events=[Event.from_opentelemetry(event) for event in src.events or ()],
            links=[Link.from_opentelemetry(link) for link in src.links or ()],
            start_time=seconds_since_1970(src.start_time),
            end_time=seconds_since_1970(src.end_time),
            context=SpanContext.from_opentelemetry(context) if context else None,
            parent=SpanContext.from_opentelemetry(parent) if parent else None,
            resource=OtelResource.from_opentelemetry(src.resource),
        )

    @classmethod
    def from_attributes(
        cls,
        *,
        attributes: Attributes,
        rollout_id: str | None = None,
        attempt_id: str | None = None,
        sequence_id: int | None = None,
        name: str | None = None,
        trace_id: str | None = None,
        span_id: str | None = None,
        parent_id: str | None = None,
        start_time: float | None = None,
        end_time: float | None = None,
        resource: OtelResource | None = None,
        status: TraceStatus | None = None,
    ) -> Self:
        """A span made by hand. Ids that are not given are random; its status is OK unless told otherwise."""
        trace_id = trace_id or secrets.token_hex(16)
        span_id = span_id or secrets.token_hex(8)
        return cls(
            rollout_id=rollout_id or "",
            attempt_id=attempt_id or "",
            sequence_id=sequence_id or 0,
            trace_id=trace_id,
            span_id=span_id,
            parent_id=parent_id,
            name=name or VIRTUAL_SPAN_NAME,
            status=status or TraceStatus(status_code="OK"),
            attributes=attributes,
            events=[],
            links=[],
            start_time=start_time,
            end_time=end_time,
            context=_local(trace_id, span_id),
            parent=_local(trace_id, parent_id) if parent_id else None,
            resource=resource or OtelResource(attributes={}, schema_url=""),
        )

    @classmethod
    def from_core_fields(
        cls,
        core: SpanCoreFields,
        *,
        rollout_id: str | None = None,
        attempt_id: str | None = None,
        sequence_id: int | None = None,
    ) -> Self:
        """A span that an emitter or tracer made, with an owner. Without a start it starts now."""
        return cls.from_attributes(
            attributes=core.attributes,
            rollout_id=rollout_id,
            attempt_id=attempt_id,
            sequence_id=sequence_id,
            name=core.name,
            trace_id=core.trace_id or None,
            span_id=core.span_id or None,
            start_time=core.start_time or time.time(),
            end_time=core.end_time,
            status=core.status,
        )


SpanLike: TypeAlias = Union["ReadableSpan", Span]


def _local(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(trace_id=trace_id, span_id=span_id, is_remote=False, trace_state={})
