"""Agent Lightning's adapters: from the spans of an attempt to triplets and chat messages."""

from .base import Adapter, OtelTraceAdapter, RewardMatchPolicy, TraceAdapter
from .messages import OpenAIMessages, TraceToMessages
from .tree import TraceTree
from .triplet import LlmProxyTraceToTriplet, TracerTraceToTriplet, TraceToTripletBase

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
