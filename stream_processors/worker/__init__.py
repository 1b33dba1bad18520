"""The worker: both processors, life cycle and assembler, as one Faust application."""

from .process import run

__all__ = ["run"]
