"""Tracers, and the one in use."""

from __future__ import annotations

from lightstream.producers.tracer import (
    AgentOpsTracer,
    DummyTracer,
    OtelTracer,
    Tracer,
    WeaveTracer,
    clear_active_tracer,
    get_active_tracer,
    set_active_tracer,
)
from lightstream.producers.tracer.dummy import DummySpanRecordingContext
from lightstream.producers.tracer.sdk_spans import SdkSpanRecordingContext as OtelSpanRecordingContext

from ._names import add_parts

__all__ = [
    "AgentOpsTracer",
    "DummySpanRecordingContext",
    "DummyTracer",
    "OtelSpanRecordingContext",
    "OtelTracer",
    "Tracer",
    "WeaveTracer",
    "clear_active_tracer",
    "get_active_tracer",
    "set_active_tracer",
]


add_parts(__name__)
