"""Adapters turn spans into triplets and messages."""

from __future__ import annotations

from lightstream.stream_processors.adapters import (
    Adapter,
    LlmProxyTraceToTriplet,
    OpenAIMessages,
    OtelTraceAdapter,
    RewardMatchPolicy,
    TraceAdapter,
    TracerTraceToTriplet,
    TraceToMessages,
    TraceToTripletBase,
    TraceTree,
)

from ._names import add_parts

__all__ = [
    "Adapter",
    "LlmProxyTraceToTriplet",
    "OpenAIMessages",
    "OtelTraceAdapter",
    "RewardMatchPolicy",
    "TraceAdapter",
    "TraceToMessages",
    "TraceToTripletBase",
    "TraceTree",
    "TracerTraceToTriplet",
]

TraceTripletAdapter = TracerTraceToTriplet
"""Its name in Agent Lightning 0.1 and 0.2, as the next one."""
BaseTraceTripletAdapter = TraceToTripletBase

add_parts(__name__)
