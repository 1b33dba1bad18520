"""Prompt evolution by the library gepa (Agrawal et al. 2025, arXiv:2507.19457), on the rollouts of a store."""

from __future__ import annotations

from .evolution import PromptEvolution
from .options import GepaOptions

__all__ = ["GepaOptions", "PromptEvolution"]
