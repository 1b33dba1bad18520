"""Stores."""

from __future__ import annotations

from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import LightningStoreCapabilities, LightningStoreStatistics
from lightstream.store_views.stores import InMemoryLightningStore
from lightstream.store_views.stores.http import LightningStoreClient, LightningStoreServer

from .threading import LightningStoreThreaded

__all__ = [
    "InMemoryLightningStore",
    "LightningStore",
    "LightningStoreCapabilities",
    "LightningStoreClient",
    "LightningStoreServer",
    "LightningStoreStatistics",
    "LightningStoreThreaded",
]
