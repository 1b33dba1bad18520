"""Algorithms that end soon."""

from __future__ import annotations

from .._algorithm import Baseline, FastAlgorithm

__all__ = ["Baseline", "FastAlgorithm"]
