"""OpenTelemetry tracing of agents."""

from .otel import OtelTracer, TraceContext
from .provider import active_provider

__all__ = ["OtelTracer", "TraceContext", "active_provider"]
