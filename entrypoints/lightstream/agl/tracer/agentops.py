"""``agentlightning.tracer.agentops``: the tracer on AgentOps."""

from __future__ import annotations

from lightstream.producers.tracer import AgentOpsTracer

__all__ = ["AgentOpsTracer"]
