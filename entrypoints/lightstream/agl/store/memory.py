"""``agentlightning.store.memory``: the store in memory."""

from __future__ import annotations

from typing import Any

from lightstream.schemas.clock import Clock
from lightstream.store_views.stores import InMemoryLightningStore as MemoryStore
from lightstream.stream_processors.core.lifecycle import Limits

from .._arguments import refuse

__all__ = ["InMemoryLightningStore"]

INSTEAD = {
    "eviction_memory_threshold": "Nothing is evicted: leave it out.",
    "safe_memory_threshold": "Nothing is evicted: leave it out.",
    "span_size_estimator": "Nothing is evicted: leave it out.",
    "tracker": "statistics() says how much is stored.",
}


class InMemoryLightningStore(MemoryStore):
    """As ``lightstream.store_views.stores.InMemoryLightningStore``, with Agent Lightning's arguments.

    Args:
        thread_safe: it always is.
        scan_debounce_seconds: makes no difference: deadlines fire when they are due, and nothing is scanned for them.
        limits, clock: of the base class.
        others: not here.

    Raises:
        SettingsError: one of ``others`` was given.
    """

    def __init__(
        self,
        *,
        thread_safe: bool = True,
        scan_debounce_seconds: float = 0.0,
        limits: Limits | None = None,
        clock: Clock | None = None,
        **others: Any,
    ) -> None:
        refuse("InMemoryLightningStore", others, INSTEAD)
        super().__init__(limits=limits, clock=clock)
