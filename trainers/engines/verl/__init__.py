"""VERL in one process: verl's advantage, loss and training engine, on a CPU or a GPU, without Ray."""

from .config import VerlConfig
from .correction import RolloutCorrection
from .warm_up import WarmUp, teach_answers

__all__ = ["RolloutCorrection", "VerlConfig", "WarmUp", "teach_answers"]
