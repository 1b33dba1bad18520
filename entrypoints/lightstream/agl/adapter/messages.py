"""``agentlightning.adapter.messages``: spans as chat messages."""

from __future__ import annotations

from lightstream.stream_processors.adapters import OpenAIMessages, TraceToMessages

__all__ = ["OpenAIMessages", "TraceToMessages"]
