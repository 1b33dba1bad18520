"""``agentlightning.tracer``: tracers, and the one that is in use."""

from __future__ import annotations

from lightstream.producers.tracer import (
    AgentOpsTracer,
    DummyTracer,
    OtelTracer,
    Tracer,
    clear_active_tracer,
    get_active_tracer,
    set_active_tracer,
)

__all__ = [
    "AgentOpsTracer",
    "DummyTracer",
    "OtelTracer",
    "Tracer",
    "clear_active_tracer",
    "get_active_tracer",
    "set_active_tracer",
]
