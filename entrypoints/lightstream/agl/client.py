"""The client of Agent Lightning's first protocol."""

from __future__ import annotations

from lightstream.store_views.stores.http import AgentLightningClient

__all__ = ["AgentLightningClient"]
