"""``agentlightning.algorithm.verl``: VERL, under the path it has there."""

from __future__ import annotations

from .interface import VERL

__all__ = ["VERL"]
