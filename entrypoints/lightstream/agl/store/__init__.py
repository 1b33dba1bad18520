"""Stores."""

from __future__ import annotations

from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import LightningStoreCapabilities, LightningStoreStatistics
from lightstream.store_views.stores import InMemoryLightningStore

from .client_server import LightningStoreClient, LightningStoreServer

__all__ = [
    "InMemoryLightningStore",
    "LightningStore",
    "LightningStoreCapabilities",
    "LightningStoreClient",
    "LightningStoreServer",
    "LightningStoreStatistics",
]
