"""Trainers: algorithms that learn from trajectories. Imports nothing heavy until it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightstream.schemas.lazy import lazy_names

if TYPE_CHECKING:
    from .algorithm import Algorithm, AlgorithmContext, algo
    from .groups import Group
    from .report import StepObserver, StepReport
    from .tiny_model import make_tiny_model
    from .trainer import Trainer
    from .verl_in_process import VERL, teach_answers

__all__ = [
    "VERL",
    "Algorithm",
    "AlgorithmContext",
    "Group",
    "StepObserver",
    "StepReport",
    "Trainer",
    "algo",
    "make_tiny_model",
    "teach_answers",
]

_MODULES = {
    "Algorithm": "algorithm",
    "AlgorithmContext": "algorithm",
    "Group": "groups",
    "StepObserver": "report",
    "StepReport": "report",
    "Trainer": "trainer",
    "VERL": "verl_in_process",
    "algo": "algorithm",
    "make_tiny_model": "tiny_model",
    "teach_answers": "verl_in_process",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
