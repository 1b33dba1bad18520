"""Kafka clients that all parts share."""

from .admin import create_topics
from .config import bootstrap_servers, common_config, consumer_config, producer_config
from .publisher import Delivered, KafkaPublisher, Position, Publisher, RecordSink

__all__ = [
    "Delivered",
    "KafkaPublisher",
    "Position",
    "Publisher",
    "RecordSink",
    "bootstrap_servers",
    "common_config",
    "consumer_config",
    "create_topics",
    "producer_config",
]
