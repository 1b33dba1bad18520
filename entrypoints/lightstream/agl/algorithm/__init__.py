"""Algorithms."""

from __future__ import annotations

from lightstream.trainers import VERL, Algorithm, algo

__all__ = ["VERL", "Algorithm", "algo"]
