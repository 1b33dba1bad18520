"""A real Apache Kafka on this machine, with nothing but Python packages installed."""

from .brokers import EmbeddedBrokers
from .embedded import EmbeddedBroker
from .jars import KAFKA_VERSION, fetch_jars
from .quick_start import prepare_quick_start

__all__ = ["KAFKA_VERSION", "EmbeddedBroker", "EmbeddedBrokers", "fetch_jars", "prepare_quick_start"]
