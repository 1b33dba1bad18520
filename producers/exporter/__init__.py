"""Spans to Kafka."""

from .convert import record_of, take_llm_call
from .exporter import ExporterStats, KafkaSpanExporter
from .fitting import shortened, taken_as_fits

__all__ = ["ExporterStats", "KafkaSpanExporter", "record_of", "shortened", "take_llm_call", "taken_as_fits"]
