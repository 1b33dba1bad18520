"""``agentlightning.tracer.dummy``: the tracer that sends nothing."""

from __future__ import annotations

from lightstream.producers.tracer import DummyTracer
from lightstream.producers.tracer.dummy import DummySpanRecordingContext

__all__ = ["DummySpanRecordingContext", "DummyTracer"]
