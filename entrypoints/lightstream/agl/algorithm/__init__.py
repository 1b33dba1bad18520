"""Algorithms."""

from __future__ import annotations

from .._algorithm import Algorithm, Baseline, FastAlgorithm, algo
from .verl import VERL

__all__ = ["VERL", "Algorithm", "Baseline", "FastAlgorithm", "algo"]
