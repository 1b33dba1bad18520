"""The LLM proxy."""

from __future__ import annotations

from lightstream.producers import LLMProxy

__all__ = ["LLMProxy"]
