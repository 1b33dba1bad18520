"""The base class of agents."""

from __future__ import annotations

from lightstream.producers import LitAgent

__all__ = ["LitAgent"]
