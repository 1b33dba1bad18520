"""``agentlightning.adapter.triplet``: spans as triplets."""

from __future__ import annotations

from lightstream.stream_processors.adapters import (
    LlmProxyTraceToTriplet,
    RewardMatchPolicy,
    TracerTraceToTriplet,
    TraceToTripletBase,
    TraceTree,
)

__all__ = ["LlmProxyTraceToTriplet", "RewardMatchPolicy", "TraceToTripletBase", "TraceTree", "TracerTraceToTriplet"]
