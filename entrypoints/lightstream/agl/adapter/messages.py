"""Spans as chat messages."""

from __future__ import annotations

from lightstream.stream_processors.adapters import TraceToMessages

__all__ = ["TraceToMessages"]
