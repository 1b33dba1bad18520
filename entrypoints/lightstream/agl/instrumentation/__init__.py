"""Automatic instrumentation: by the field's own instrumentors (``lightstream.producers.instrumentation``)."""

from __future__ import annotations

from lightstream.producers import instrument, uninstrument

__all__ = ["instrument_all", "uninstrument_all"]


def instrument_all() -> None:
    """Let the calls of every library become spans whose instrumentor is installed."""
    instrument()


def uninstrument_all() -> None:
    """Undo it."""
    uninstrument()
