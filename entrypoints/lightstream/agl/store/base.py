"""The interface of stores."""

from __future__ import annotations

from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import UNSET, LightningStoreCapabilities, LightningStoreStatistics, Unset

__all__ = ["UNSET", "LightningStore", "LightningStoreCapabilities", "LightningStoreStatistics", "Unset"]
