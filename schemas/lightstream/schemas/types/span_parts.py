"""What a span is made of, in OpenTelemetry's terms: context, status, events, links, resource."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from pydantic import ConfigDict

from ..clock import NANOS_PER_SECOND
from .json_model import JsonModel
from .status import StatusCode

if TYPE_CHECKING:
    from opentelemetry import trace
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import Event as SdkEvent

__all__ = [
    "AttributeValue",
    "Attributes",
    "Event",
    "Link",
    "OtelResource",
    "SpanContext",
    "TraceState",
    "TraceStatus",
    "hex_span_id",
    "hex_trace_id",
    "seconds_since_1970",
]

AttributeValue: TypeAlias = Any
"""Text, numbers, booleans, or a list of one of these; also what OTLP nests."""
Attributes: TypeAlias = dict[str, AttributeValue]
TraceState: TypeAlias = dict[str, str]

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
    return timestamp / NANOS_PER_SECOND if timestamp > NANOSECONDS_FROM else timestamp


class _Open(JsonModel):
    model_config = ConfigDict(extra="allow")


class SpanContext(_Open):
    """Which span of which trace (ids in hex)."""

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
    """How the operation went."""

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
    """Who made the span: a process, its service, its SDK."""

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
