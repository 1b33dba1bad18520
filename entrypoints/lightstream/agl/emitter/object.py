"""``agentlightning.emitter.object``: emit_object, and the reader of what it wrote."""

from __future__ import annotations

from lightstream.producers import emit_object, get_object_value
from lightstream.producers.emitter.messages import encode_object

__all__ = ["emit_object", "encode_object", "get_object_value"]
