"""OpenTelemetry's own ways in: an exporter that its SDK finds by name, and a gateway that takes OTLP.

Imports nothing until it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightstream.runtime.lazy import lazy_names

if TYPE_CHECKING:
    from .span_exporter import LightstreamSpanExporter

__all__ = ["LightstreamSpanExporter"]

__getattr__, __dir__ = lazy_names(__name__, {"LightstreamSpanExporter": "span_exporter"})
