"""Automatic instrumentation: the calls of an agent's libraries become spans, by existing instrumentors."""

from .registry import INSTRUMENTORS, Instrumentor
from .switch import instrument, instrument_as_asked, instrumented, uninstrument

__all__ = ["INSTRUMENTORS", "Instrumentor", "instrument", "instrument_as_asked", "instrumented", "uninstrument"]
