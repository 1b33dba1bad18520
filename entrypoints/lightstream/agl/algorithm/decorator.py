"""An algorithm from a function."""

from __future__ import annotations

from .._algorithm import FunctionalAlgorithm, algo

__all__ = ["FunctionalAlgorithm", "algo"]
