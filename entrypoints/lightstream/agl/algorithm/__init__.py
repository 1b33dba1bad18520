"""``agentlightning.algorithm``: what works on a store beside its Runners."""

from __future__ import annotations

from .base import Algorithm
from .decorator import algo
from .fast import Baseline, FastAlgorithm
from .verl import VERL

__all__ = ["VERL", "Algorithm", "Baseline", "FastAlgorithm", "algo"]
