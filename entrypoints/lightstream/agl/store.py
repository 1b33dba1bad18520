"""Stores in memory and over HTTP, with Agent Lightning 0.3's arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lightstream.runtime.clock import Clock
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import StoreError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import UNSET, LightningStoreCapabilities, LightningStoreStatistics, Rollout, Unset
from lightstream.store_views.stores import InMemoryLightningStore as MemoryStore
from lightstream.store_views.stores.forwarding import ForwardingStore
from lightstream.store_views.stores.http import LightningStoreClient as HttpClient
from lightstream.store_views.stores.http import LightningStoreServer as HttpServer
from lightstream.stream_processors.core.lifecycle import Limits
from lightstream.up.store_traces import traces_of_store

from ._arguments import refuse
from ._names import add_parts
from ._tracked import track
from .utils.metrics import MetricsBackend

__all__ = [
    "UNSET",
    "InMemoryLightningStore",
    "LightningStore",
    "LightningStoreCapabilities",
    "LightningStoreClient",
    "LightningStoreServer",
    "LightningStoreStatistics",
    "LightningStoreThreaded",
    "Unset",
    "is_finished",
    "is_queuing",
    "is_running",
]

MEMORY_INSTEAD = {
    "eviction_memory_threshold": "Nothing is evicted: leave it out.",
    "safe_memory_threshold": "Nothing is evicted: leave it out.",
    "span_size_estimator": "Nothing is evicted: leave it out.",
}
"""Argument -> what to do instead."""

SERVER_INSTEAD = {
    "launch_mode": "A thread serves: leave it out, or 'thread'.",
    "launcher_args": "Give host and port.",
    "n_workers": "A thread serves: leave it out, or 1.",
}
"""Argument -> what to do instead."""


def is_queuing(rollout: Rollout) -> bool:
    """Return whether it waits for its first or next attempt."""
    return rollout.status in ("queuing", "requeuing")


def is_running(rollout: Rollout) -> bool:
    """Return whether an attempt of it runs."""
    return rollout.status in ("preparing", "running")


def is_finished(rollout: Rollout) -> bool:
    """Return whether it has ended."""
    return rollout.status in ("failed", "succeeded", "cancelled")


class InMemoryLightningStore(MemoryStore):
    """As ``lightstream.store_views.stores.InMemoryLightningStore``, with Agent Lightning 0.3's arguments.

    Args:
        thread_safe: it always is.
        scan_debounce_seconds: makes no difference: deadlines fire when they are due, and nothing is scanned for them.
        tracker: counts the calls.
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
        tracker: MetricsBackend | None = None,
        limits: Limits | None = None,
        clock: Clock | None = None,
        **others: Any,
    ) -> None:
        refuse("InMemoryLightningStore", others, MEMORY_INSTEAD)
        super().__init__(limits=limits, clock=clock)
        if tracker is not None:
            track(self, tracker)


class LightningStoreThreaded(ForwardingStore):
    """The given store, which is thread-safe as every store here is.

    Raises:
        StoreError: it is someone else's and is not.
    """

    def __init__(self, store: LightningStore) -> None:
        super().__init__(store)
        if not store.capabilities.get("thread_safe"):
            raise StoreError(
                f"{type(store).__name__} is not thread-safe, and locks cannot fix that.",
                next_step="Use InMemoryLightningStore or KafkaLightningStore, or a LightningStoreClient of either.",
            )

    async def start(self) -> None:
        await self.store.start()

    async def close(self) -> None:
        await self.store.close()


class LightningStoreServer(HttpServer):
    """As ``lightstream.store_views.stores.http.LightningStoreServer``, with Agent Lightning 0.3's arguments.

    It also takes OTLP traces, at ``/v1/traces``.

    Args:
        store, host, port, cors_allow_origins, settings: of the base class.
        launch_mode, n_workers: ``thread``, 1.
        tracker: counts the calls of the store, which others make, too.
        others: not here.

    Raises:
        SettingsError: one of ``others``, or another mode or number was given.
    """

    def __init__(
        self,
        store: LightningStore,
        host: str | None = None,
        port: int | None = None,
        cors_allow_origins: Sequence[str] | str | None = None,
        launch_mode: str = "thread",
        n_workers: int = 1,
        *,
        tracker: MetricsBackend | None = None,
        settings: Settings | None = None,
        **others: Any,
    ) -> None:
        mode = None if launch_mode == "thread" else launch_mode
        workers = None if n_workers == 1 else n_workers
        refuse("LightningStoreServer", {"launch_mode": mode, "n_workers": workers} | others, SERVER_INSTEAD)
        if tracker is not None:
            track(store, tracker)
        super().__init__(
            store, host, port, settings=settings, cors_allow_origins=cors_allow_origins, traces=traces_of_store
        )


class LightningStoreClient(HttpClient):
    """As ``lightstream.store_views.stores.http.LightningStoreClient``, with Agent Lightning 0.3's arguments.

    Args:
        server_address: URL of the server, without a path; the property of this name adds ``/v1/agl``, as there.
        retry_delays, health_retry_delays: seconds between tries. Here their sum is how long calls wait for an
            unavailable server (``patience_s``); the client decides when to retry.
        request_timeout, connection_timeout: make no difference: a request that takes long is sent again, which joins
            it, and none waits longer than 5 s for a connection.
        options: of the base class (``settings``, ``token``, ``patience_s``).
    """

    def __init__(
        self,
        server_address: str | None = None,
        *,
        retry_delays: Sequence[float] | None = None,
        health_retry_delays: Sequence[float] | None = None,
        request_timeout: float | None = None,
        connection_timeout: float | None = None,
        **options: Any,
    ) -> None:
        if retry_delays is not None or health_retry_delays is not None:
            options.setdefault("patience_s", sum(retry_delays or ()) + sum(health_retry_delays or ()))
        super().__init__(server_address, **options)


add_parts(__name__)
