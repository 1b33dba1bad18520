"""``agentlightning.instrumentation.litellm``: LiteLLM's calls as spans."""

from __future__ import annotations

from lightstream.producers import instrument, uninstrument

__all__ = ["instrument_litellm", "uninstrument_litellm"]


def instrument_litellm() -> None:
    """Let LiteLLM's calls become spans."""
    instrument(["litellm"])


def uninstrument_litellm() -> None:
    """Undo it."""
    uninstrument(["litellm"])
