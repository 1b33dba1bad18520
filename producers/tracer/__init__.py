"""Tracers record an agent's calls as spans of its attempt. Those of other libraries load on use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightstream.runtime.lazy import lazy_names

if TYPE_CHECKING:
    from .agentops import AgentOpsTracer
    from .base import Tracer
    from .dummy import DummyTracer
    from .otel import OtelTracer
    from .provider import active_provider
    from .running import attempt_here, clear_active_tracer, get_active_tracer, set_active_tracer
    from .trace_context import TraceContext
    from .weave import WeaveTracer

__all__ = [
    "AgentOpsTracer",
    "DummyTracer",
    "OtelTracer",
    "TraceContext",
    "Tracer",
    "WeaveTracer",
    "active_provider",
    "attempt_here",
    "clear_active_tracer",
    "get_active_tracer",
    "set_active_tracer",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "AgentOpsTracer": "agentops",
        "DummyTracer": "dummy",
        "OtelTracer": "otel",
        "TraceContext": "trace_context",
        "Tracer": "base",
        "WeaveTracer": "weave",
        "active_provider": "provider",
        "attempt_here": "running",
        "clear_active_tracer": "running",
        "get_active_tracer": "running",
        "set_active_tracer": "running",
    },
)
