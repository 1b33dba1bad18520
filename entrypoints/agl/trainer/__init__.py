"""The Trainer, and its parts from their descriptions."""

from __future__ import annotations

from .._names import add_parts
from .init_utils import build_component
from .trainer import ExecutionStrategyRegistry, Trainer

__all__ = ["ExecutionStrategyRegistry", "Trainer", "build_component"]

add_parts(__name__)
