"""Interfaces that one folder implements and another uses."""

from .store import LightningStore

__all__ = ["LightningStore"]
