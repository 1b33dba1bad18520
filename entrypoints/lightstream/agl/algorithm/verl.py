"""VERL."""

from __future__ import annotations

from lightstream.trainers import VERL

__all__ = ["VERL"]
