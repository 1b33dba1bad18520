"""The base of algorithms."""

from __future__ import annotations

from lightstream.trainers import Algorithm

__all__ = ["Algorithm"]
