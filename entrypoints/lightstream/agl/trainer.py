"""The trainer."""

from __future__ import annotations

from lightstream.trainers import Trainer

__all__ = ["Trainer"]
