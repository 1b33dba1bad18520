"""Automatic instrumentation: the calls of an agent's libraries become spans, by the field's own instrumentors."""

from .switch import instrument, instrumented, uninstrument
from .registry import INSTRUMENTORS, Instrumentor

__all__ = ["INSTRUMENTORS", "Instrumentor", "instrument", "instrumented", "uninstrument"]
