"""The base of algorithms."""

from __future__ import annotations

from .._algorithm import Algorithm

__all__ = ["Algorithm"]
