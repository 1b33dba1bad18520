"""``agentlightning.store.threading``: a store for several threads, as all are here."""

from __future__ import annotations

from lightstream.schemas.errors import StoreError
from lightstream.schemas.interfaces import LightningStore
from lightstream.store_views.stores.http import ForwardingStore

__all__ = ["LightningStoreThreaded"]


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
