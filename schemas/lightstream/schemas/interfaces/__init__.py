"""Interfaces that one folder implements and another uses."""

from .store import EnqueueRolloutRequest, LightningStore

__all__ = ["EnqueueRolloutRequest", "LightningStore"]
