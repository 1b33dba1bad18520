"""Spans to Kafka."""

from .convert import record_of
from .exporter import ExporterStats, KafkaSpanExporter

__all__ = ["ExporterStats", "KafkaSpanExporter", "record_of"]
