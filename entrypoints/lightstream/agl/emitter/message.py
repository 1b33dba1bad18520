"""``agentlightning.emitter.message``: emit_message, and the reader of what it wrote."""

from __future__ import annotations

from lightstream.producers import emit_message, get_message_value

__all__ = ["emit_message", "get_message_value"]
