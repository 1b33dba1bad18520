"""Stores over HTTP."""

from __future__ import annotations

from collections.abc import Sequence

from lightstream.processes.store_traces import traces_of_store
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.settings import Settings
from lightstream.store_views.stores.http import LightningStoreClient
from lightstream.store_views.stores.http import LightningStoreServer as StoreServer

__all__ = ["LightningStoreClient", "LightningStoreServer"]


class LightningStoreServer(StoreServer):
    """The store's server, which also takes OTLP traces, at ``/v1/traces``."""

    def __init__(
        self,
        store: LightningStore,
        host: str | None = None,
        port: int | None = None,
        cors_allow_origins: Sequence[str] | str | None = None,
        *,
        settings: Settings | None = None,
    ) -> None:
        super().__init__(
            store, host, port, settings=settings, cors_allow_origins=cors_allow_origins, traces=traces_of_store
        )
