"""A store on Kafka and the view."""

from .store import KafkaLightningStore

__all__ = ["KafkaLightningStore"]
