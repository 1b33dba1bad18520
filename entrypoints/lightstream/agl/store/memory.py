"""A store in memory."""

from __future__ import annotations

from lightstream.store_views.stores import InMemoryLightningStore

__all__ = ["InMemoryLightningStore"]
