"""``agentlightning.emitter.annotation``: annotations and operations."""

from __future__ import annotations

from lightstream.producers import emit_annotation, operation
from lightstream.producers.emitter import OperationContext

__all__ = ["OperationContext", "emit_annotation", "operation"]
