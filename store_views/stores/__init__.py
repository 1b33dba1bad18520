"""Stores: implementations of :class:`lightstream.schemas.interfaces.LightningStore`."""

from .kafka import KafkaLightningStore
from .memory import InMemoryLightningStore

__all__ = ["InMemoryLightningStore", "KafkaLightningStore"]
