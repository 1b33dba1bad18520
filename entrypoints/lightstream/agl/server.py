"""The server of the first protocol."""

from __future__ import annotations

from lightstream.store_views.stores.http import AgentLightningServer

__all__ = ["AgentLightningServer"]
