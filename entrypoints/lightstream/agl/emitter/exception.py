"""``agentlightning.emitter.exception``: emit_exception, and the reader of what it wrote."""

from __future__ import annotations

from lightstream.producers import emit_exception

__all__ = ["emit_exception"]
