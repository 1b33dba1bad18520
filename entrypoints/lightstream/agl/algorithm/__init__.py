"""Algorithms."""

from __future__ import annotations

from lightstream.trainers import VERL

from .._algorithm import Algorithm, Baseline, FastAlgorithm, algo

__all__ = ["VERL", "Algorithm", "Baseline", "FastAlgorithm", "algo"]
