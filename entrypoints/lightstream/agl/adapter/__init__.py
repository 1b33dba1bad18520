"""``agentlightning.adapter``: spans as triplets and as messages."""

from __future__ import annotations

from lightstream.stream_processors.adapters import (
    Adapter,
    LlmProxyTraceToTriplet,
    OtelTraceAdapter,
    TraceAdapter,
    TracerTraceToTriplet,
    TraceToMessages,
    TraceToTripletBase,
)

__all__ = [
    "Adapter",
    "LlmProxyTraceToTriplet",
    "OtelTraceAdapter",
    "TraceAdapter",
    "TraceToMessages",
    "TraceToTripletBase",
    "TracerTraceToTriplet",
]
