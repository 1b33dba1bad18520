"""The interfaces that agents speak to the proxy in, and how each becomes a request that the model server takes."""

from .dialect import CHAT, COMPLETIONS, EMBEDDINGS, Dialect, Endpoint, StreamEvent, Translation
from .messages import ANTHROPIC_MESSAGES
from .responses import ResponsesDialect

__all__ = [
    "ANTHROPIC_MESSAGES",
    "CHAT",
    "COMPLETIONS",
    "EMBEDDINGS",
    "Dialect",
    "Endpoint",
    "ResponsesDialect",
    "StreamEvent",
    "Translation",
]
