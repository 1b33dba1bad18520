"""``agentlightning.trainer``: the Trainer, and its parts from their descriptions."""

from __future__ import annotations

from .init_utils import build_component
from .trainer import Trainer

__all__ = ["Trainer", "build_component"]
