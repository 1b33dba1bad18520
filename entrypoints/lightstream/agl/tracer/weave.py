"""``agentlightning.tracer.weave``: the tracer on Weave."""

from __future__ import annotations

from lightstream.producers.tracer import WeaveTracer

__all__ = ["WeaveTracer"]
