"""Spans that say something in one go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.trace import StatusCode

from lightstream.schemas.errors import SettingsError

from .. import semconv
from ..tracer import active_provider
from .attributes import flattened

__all__ = ["SpanCoreFields", "emit_annotation", "emit_span"]

INSTRUMENTATION_NAME = "lightstream"


@dataclass(frozen=True, slots=True)
class SpanCoreFields:
    """A span that was emitted. Ids in lower-case hex, empty where it was not sent; times in seconds since 1970."""

    name: str
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    start_time: float = 0.0
    end_time: float = 0.0
    trace_id: str = ""
    span_id: str = ""


def emit_annotation(annotation: Mapping[str, Any], propagate: bool = True) -> SpanCoreFields:
    """Annotate the running attempt. Nested values are flattened (``{"a": {"b": 1}}`` becomes ``a.b``).

    Args:
        annotation: attribute names and values.
        propagate: ``False`` makes the fields but sends nothing.

    Raises:
        TypeError: a value is of a kind that no attribute has.
        SettingsError: no tracer is active, so the annotation would be lost.
    """
    return emit_span(semconv.AGL_ANNOTATION, flattened(annotation), propagate=propagate, status=StatusCode.OK)


def emit_span(
    name: str,
    attributes: dict[str, Any],
    *,
    propagate: bool = True,
    status: StatusCode = StatusCode.UNSET,
    before_end: Callable[[trace.Span], None] | None = None,
) -> SpanCoreFields:
    """A span that starts and ends here."""
    if not propagate:
        return SpanCoreFields(name, attributes)
    span = _provider().get_tracer(INSTRUMENTATION_NAME).start_span(name, attributes=attributes)
    if before_end is not None:
        before_end(span)
    if status is not StatusCode.UNSET:
        span.set_status(status)
    span.end()
    context = span.get_span_context()
    ended = span if isinstance(span, ReadableSpan) else None
    return SpanCoreFields(
        name,
        attributes,
        start_time=(ended.start_time or 0) / 1e9 if ended else 0.0,
        end_time=(ended.end_time or 0) / 1e9 if ended else 0.0,
        trace_id=f"{context.trace_id:032x}",
        span_id=f"{context.span_id:016x}",
    )


def _provider() -> TracerProvider:
    provider = active_provider() or trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        raise SettingsError(
            "no tracer is active, so what is emitted would be lost.",
            next_step="Run the agent with a Runner, or inside `OtelTracer().trace_context(...)`; "
            "`propagate=False` emits nothing on purpose.",
        )
    return provider
