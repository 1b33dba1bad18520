"""An algorithm from a function."""

from __future__ import annotations

from lightstream.trainers import algo

__all__ = ["algo"]
