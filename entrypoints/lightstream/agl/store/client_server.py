"""``agentlightning.store.client_server``: stores over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lightstream.processes.store_traces import traces_of_store
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.settings import Settings
from lightstream.store_views.stores.http import LightningStoreClient as HttpClient
from lightstream.store_views.stores.http import LightningStoreServer as HttpServer

from .._arguments import refuse

__all__ = ["LightningStoreClient", "LightningStoreServer"]

SERVER_INSTEAD = {
    "launch_mode": "A thread serves: leave it out, or 'thread'.",
    "launcher_args": "Give host and port.",
    "n_workers": "A thread serves: leave it out, or 1.",
    "tracker": "statistics() says how much is stored.",
}


class LightningStoreServer(HttpServer):
    """As ``lightstream.store_views.stores.http.LightningStoreServer``, with Agent Lightning's arguments.

    It also takes OTLP traces, at ``/v1/traces``.

    Args:
        store, host, port, cors_allow_origins, settings: of the base class.
        launch_mode, n_workers: ``thread``, 1.
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
        settings: Settings | None = None,
        **others: Any,
    ) -> None:
        mode = None if launch_mode == "thread" else launch_mode
        workers = None if n_workers == 1 else n_workers
        refuse("LightningStoreServer", {"launch_mode": mode, "n_workers": workers} | others, SERVER_INSTEAD)
        super().__init__(
            store, host, port, settings=settings, cors_allow_origins=cors_allow_origins, traces=traces_of_store
        )


class LightningStoreClient(HttpClient):
    """As ``lightstream.store_views.stores.http.LightningStoreClient``, with Agent Lightning's arguments.

    Args:
        server_address: URL of the server.
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
