"""Spans as stores keep them, in OpenTelemetry's terms."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeAlias, Union

from pydantic import ConfigDict

from .base import JsonModel

if TYPE_CHECKING:
    from opentelemetry import trace
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import Event as SdkEvent
    from opentelemetry.sdk.trace import ReadableSpan

AttributeValue: TypeAlias = Any
"""Text, numbers, booleans, or a list of one of these; also what OTLP nests."""
Attributes: TypeAlias = dict[str, AttributeValue]
TraceState: TypeAlias = dict[str, str]
StatusCode: TypeAlias = Literal["UNSET", "OK", "ERROR"]

NANOSECONDS_FROM = 1e12
"""A time above this is nanoseconds: as seconds it would lie 30,000 years ahead."""


def hex_trace_id(trace_id: int) -> str:
    """32 lower-case hex digits."""
    return f"{trace_id:032x}"


def hex_span_id(span_id: int) -> str:
    """16 lower-case hex digits."""
    return f"{span_id:016x}"


def seconds_since_1970(timestamp: float | None) -> float | None:
    """A timestamp of seconds or nanoseconds, in seconds; none for none (or 0, OpenTelemetry's none)."""
    if not timestamp:
        return None
    return timestamp / 10**9 if timestamp > NANOSECONDS_FROM else timestamp


class _Open(JsonModel):
    model_config = ConfigDict(extra="allow")


class SpanContext(_Open):
    """A span of a trace, by ids in hex."""

    trace_id: str
    span_id: str
    is_remote: bool
    trace_state: TraceState

    @classmethod
    def from_opentelemetry(cls, src: trace.SpanContext) -> Self:
        """The SDK's context as a model."""
        return cls(
            trace_id=hex_trace_id(src.trace_id),
            span_id=hex_span_id(src.span_id),
            is_remote=src.is_remote,
            trace_state=dict(src.trace_state.items()) if src.trace_state else {},
        )


class TraceStatus(_Open):
    """The outcome of the operation."""

    status_code: StatusCode
    description: str | None = None

    @classmethod
    def from_opentelemetry(cls, src: trace.Status) -> Self:
        """The SDK's status as a model."""
        return cls.model_validate({"status_code": src.status_code.name, "description": src.description})


class Event(_Open):
    """Something that happened at one time (seconds since 1970)."""

    name: str
    attributes: Attributes
    timestamp: float | None = None

    @classmethod
    def from_opentelemetry(cls, src: SdkEvent) -> Self:
        """The SDK's event as a model."""
        return cls(name=src.name, attributes=plain(src.attributes), timestamp=seconds_since_1970(src.timestamp))


class Link(_Open):
    """A reference to another span."""

    context: SpanContext
    attributes: Attributes | None = None

    @classmethod
    def from_opentelemetry(cls, src: trace.Link) -> Self:
        """The SDK's link as a model."""
        return cls(
            context=SpanContext.from_opentelemetry(src.context),
            attributes=plain(src.attributes) if src.attributes else None,
        )


class OtelResource(_Open):
    """The maker of the span: a process, its service, its SDK."""

    attributes: Attributes
    schema_url: str

    @classmethod
    def from_opentelemetry(cls, src: Resource) -> Self:
        """The SDK's resource as a model."""
        return cls(attributes=plain(src.attributes), schema_url=src.schema_url or "")


def plain(attributes: Mapping[str, Any] | None) -> Attributes:
    """Attributes as a dictionary of their own, sequences as lists."""
    return {key: _plain_value(value) for key, value in (attributes or {}).items()}


def _plain_value(value: Any) -> Any:
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [_plain_value(item) for item in value]
    return value


class SpanCoreFields(JsonModel):
    """A span that was made (times in seconds since 1970).

    ``trace_id`` and ``span_id`` (lower-case hex) are those it was sent with, for links to it; empty where it was not
    sent, or where the tracer's library does not say.
    """

    name: str
    status: TraceStatus
    attributes: Attributes
    start_time: float | None
    end_time: float | None
    trace_id: str = ""
    span_id: str = ""


class SpanRecordingContext(Protocol):
    """An open span: it records events and attributes, and its opener ends it."""

    def record_exception(self, exception: BaseException) -> None:
        """Note an exception; the span's status becomes ``ERROR``."""
        ...

    def record_attributes(self, attributes: Attributes) -> None:
        """Add attributes, or replace attributes of the same name."""
        ...

    def record_status(self, status_code: StatusCode, description: str | None = None) -> None:
        """Set the status."""
        ...

    def get_recorded_span(self) -> SpanCoreFields:
        """The span so far; once it has ended, all of it.

        Raises:
            ValueError: it is not known (yet).
        """
        ...


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
