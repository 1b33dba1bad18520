"""Stores in memory and over HTTP, with Agent Lightning 0.3's arguments."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Sequence
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
from lightstream.store_views.stores.http import Pages
from lightstream.stream_processors.core.lifecycle import Limits
from lightstream.up.store_traces import traces_of_store

from ._arguments import refuse
from ._names import add_parts
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

CALLS = "agl.store.total"
SECONDS = "agl.store.latency"
LABELS = ("method", "store_pubmeth", "status")
BUCKETS_S = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)

WITHOUT = frozenset({"start", "close"})

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
            _track(self, tracker)


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


def _pages(store: MemoryStore, settings: Settings) -> Pages:
    """The dashboard of a store in memory, whose libraries are loaded with the first server."""
    from lightstream.store_views.server.of_memory import MemoryDashboard

    return MemoryDashboard(store, settings)


class LightningStoreServer(HttpServer):
    """As ``lightstream.store_views.stores.http.LightningStoreServer``, with Agent Lightning 0.3's arguments.

    It also takes OTLP traces, at ``/v1/traces``. Of a store in memory it has the dashboard, at ``/``.

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
            _track(store, tracker)
        super().__init__(
            store,
            host,
            port,
            settings=settings,
            cors_allow_origins=cors_allow_origins,
            traces=traces_of_store,
            pages=_pages,
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


def _track(store: LightningStore, tracker: MetricsBackend) -> None:
    """From now on count each call of ``store`` and its seconds, with Agent Lightning 0.3's names and labels.

    ``status`` is ``OK`` or the error's type. One store may have several trackers.

    Raises:
        ValueError: the tracker has other metrics of these names.
    """
    tracker.register_counter(CALLS, LABELS, group_level=1)
    tracker.register_histogram(SECONDS, LABELS, BUCKETS_S, group_level=1)
    for name, method in inspect.getmembers(type(store), inspect.iscoroutinefunction):
        if not name.startswith("_") and name not in WITHOUT and hasattr(LightningStore, name):
            setattr(store, name, _counted(getattr(store, name), method, name, tracker))


def _counted(call: Callable[..., Any], method: Callable[..., Any], name: str, tracker: MetricsBackend) -> Any:
    @functools.wraps(method)
    async def counted(*arguments: Any, **named: Any) -> Any:
        began_s, status = time.perf_counter(), "OK"
        try:
            return await call(*arguments, **named)
        except BaseException as error:
            status = type(error).__name__
            raise
        finally:
            labels = {"method": name, "store_pubmeth": name, "status": status}
            await tracker.inc_counter(CALLS, labels=labels)
            await tracker.observe_histogram(SECONDS, time.perf_counter() - began_s, labels=labels)

    return counted


add_parts(__name__)
