"""VERL."""

from __future__ import annotations

from .interface import VERL

__all__ = ["VERL"]
