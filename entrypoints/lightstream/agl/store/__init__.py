"""``agentlightning.store``: stores in memory and over HTTP."""

from __future__ import annotations

from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import LightningStoreCapabilities, LightningStoreStatistics

from .client_server import LightningStoreClient, LightningStoreServer
from .memory import InMemoryLightningStore
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
