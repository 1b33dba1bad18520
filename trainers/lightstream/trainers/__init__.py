"""Trainers: algorithms that learn from trajectories. Imports nothing heavy until it is used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
