"""Instrumentation of libraries, by the field's own instrumentors (``lightstream.producers.instrumentation``)."""

from __future__ import annotations

from lightstream.producers import instrument, uninstrument

from ._names import add_parts

__all__ = ["instrument_all", "instrument_litellm", "uninstrument_all", "uninstrument_litellm"]


def instrument_all() -> None:
    """Let the calls of every library become spans whose instrumentor is installed."""
    instrument()


def uninstrument_all() -> None:
    """Undo it."""
    uninstrument()


def instrument_litellm() -> None:
    """Let LiteLLM's calls become spans."""
    instrument(["litellm"])


def uninstrument_litellm() -> None:
    """Undo it."""
    uninstrument(["litellm"])


add_parts(__name__)
