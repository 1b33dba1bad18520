"""The trainer."""

from __future__ import annotations

from ._trainer import Trainer

__all__ = ["Trainer"]
