"""A store in this process's memory."""

from .store import InMemoryLightningStore

__all__ = ["InMemoryLightningStore"]
