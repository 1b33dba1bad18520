"""Stores over HTTP."""

from __future__ import annotations

from lightstream.store_views.stores.http import LightningStoreClient, LightningStoreServer

__all__ = ["LightningStoreClient", "LightningStoreServer"]
