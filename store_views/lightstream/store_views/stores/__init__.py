"""Stores: implementations of :class:`lightstream.schemas.interfaces.LightningStore`."""

from .kafka_store import KafkaLightningStore

__all__ = ["KafkaLightningStore"]
