"""Runner processes that live and die with the trainer."""

from .processes import RunnerProcesses

__all__ = ["RunnerProcesses"]
