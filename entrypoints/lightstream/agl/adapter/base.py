"""``agentlightning.adapter.base``: what an adapter is."""

from __future__ import annotations

from lightstream.stream_processors.adapters import Adapter, OtelTraceAdapter, TraceAdapter

__all__ = ["Adapter", "OtelTraceAdapter", "TraceAdapter"]
