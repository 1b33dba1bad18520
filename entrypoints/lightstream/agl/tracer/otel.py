"""``agentlightning.tracer.otel``: the tracer on OpenTelemetry."""

from __future__ import annotations

from lightstream.producers.tracer import OtelTracer
from lightstream.producers.tracer.sdk_spans import SdkSpanRecordingContext as OtelSpanRecordingContext

__all__ = ["OtelSpanRecordingContext", "OtelTracer"]
