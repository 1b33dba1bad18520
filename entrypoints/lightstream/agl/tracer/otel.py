"""The tracer on OpenTelemetry."""

from __future__ import annotations

from lightstream.producers.tracer import OtelTracer

__all__ = ["OtelTracer"]
