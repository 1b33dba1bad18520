"""Spans to Kafka."""

from ._llm_call import take_llm_call
from .convert import record_of
from .exporter import ExporterStats, KafkaSpanExporter
from .truncate import shortened

__all__ = ["ExporterStats", "KafkaSpanExporter", "record_of", "shortened", "take_llm_call"]
