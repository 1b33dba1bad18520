"""``agentlightning.tracer.base``: the interface of tracers."""

from __future__ import annotations

from lightstream.producers.tracer import Tracer, clear_active_tracer, get_active_tracer, set_active_tracer

__all__ = ["Tracer", "clear_active_tracer", "get_active_tracer", "set_active_tracer"]
