"""Interfaces that one folder implements and another uses."""

from .queries import (
    Argument,
    AttemptFilters,
    ResourcesFilters,
    RolloutFilters,
    SpanFilters,
    WorkerFilters,
    arguments_of,
    takes,
)
from .store import LightningStore

__all__ = [
    "Argument",
    "AttemptFilters",
    "LightningStore",
    "ResourcesFilters",
    "RolloutFilters",
    "SpanFilters",
    "WorkerFilters",
    "arguments_of",
    "takes",
]
