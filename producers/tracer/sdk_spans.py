"""Spans of the OpenTelemetry SDK, made by hand."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider

from lightstream.runtime.clock import NANOS_PER_SECOND
from lightstream.schemas.types import Attributes, SpanCoreFields, StatusCode, TraceStatus
from lightstream.schemas.types.span import hex_span_id, hex_trace_id, plain, seconds_since_1970

INSTRUMENTATION_NAME = "lightstream"


class SdkSpanRecordingContext:
    """An open span of the SDK. See ``SpanRecordingContext``."""

    def __init__(self, span: trace.Span) -> None:
        self._span = span

    def record_exception(self, exception: BaseException) -> None:
        self._span.record_exception(exception)
        self.record_status("ERROR", str(exception))

    def record_attributes(self, attributes: Attributes) -> None:
        self._span.set_attributes(attributes)

    def record_status(self, status_code: StatusCode, description: str | None = None) -> None:
        code = trace.StatusCode[status_code]
        self._span.set_status(code, description if code is trace.StatusCode.ERROR else None)

    def get_otel_span(self) -> trace.Span:
        """The span itself."""
        return self._span

    def get_recorded_span(self) -> SpanCoreFields:
        """The span so far.

        Raises:
            ValueError: it is not recorded (not sampled).
        """
        return _fields(self._span)


def create_span(
    provider: TracerProvider,
    name: str,
    attributes: Attributes | None = None,
    timestamp: float | None = None,
    status: TraceStatus | None = None,
) -> SpanCoreFields:
    """A span that starts and ends at once."""
    at = None if timestamp is None else int(timestamp * NANOS_PER_SECOND)
    span = provider.get_tracer(INSTRUMENTATION_NAME).start_span(name, attributes=attributes, start_time=at)
    if status is not None:
        SdkSpanRecordingContext(span).record_status(status.status_code, status.description)
    span.end(at)
    return _fields(span)


@contextmanager
def operation_context(
    provider: TracerProvider, name: str, attributes: Attributes | None = None, start_time: float | None = None
) -> Generator[SdkSpanRecordingContext]:
    """A span around the operations inside."""
    at = None if start_time is None else int(start_time * NANOS_PER_SECOND)
    tracer = provider.get_tracer(INSTRUMENTATION_NAME)
    with tracer.start_as_current_span(name, attributes=attributes, start_time=at) as span:
        yield SdkSpanRecordingContext(span)


def _fields(span: trace.Span) -> SpanCoreFields:
    if not isinstance(span, ReadableSpan):
        raise ValueError("the span is not sampled: nothing of it is recorded")
    context = span.get_span_context()
    return SpanCoreFields(
        name=span.name,
        attributes=plain(span.attributes),
        start_time=seconds_since_1970(span.start_time),
        end_time=seconds_since_1970(span.end_time),
        status=TraceStatus.from_opentelemetry(span.status),
        trace_id=hex_trace_id(context.trace_id) if context else "",
        span_id=hex_span_id(context.span_id) if context else "",
    )
