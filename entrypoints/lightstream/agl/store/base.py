"""``agentlightning.store.base``: the interface of stores."""

from __future__ import annotations

from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import UNSET, LightningStoreCapabilities, LightningStoreStatistics, Rollout, Unset

__all__ = [
    "UNSET",
    "LightningStore",
    "LightningStoreCapabilities",
    "LightningStoreStatistics",
    "Unset",
    "is_finished",
    "is_queuing",
    "is_running",
]


def is_queuing(rollout: Rollout) -> bool:
    """Whether it waits for its first or next attempt."""
    return rollout.status in ("queuing", "requeuing")


def is_running(rollout: Rollout) -> bool:
    """Whether someone works on it."""
    return rollout.status in ("preparing", "running")


def is_finished(rollout: Rollout) -> bool:
    """Whether it is over."""
    return rollout.status in ("failed", "succeeded", "cancelled")
