"""Which stores take spans themselves."""

from __future__ import annotations

from lightstream.schemas.interfaces import LightningStore

__all__ = ["spans_beside"]


def spans_beside(store: LightningStore) -> LightningStore | None:
    """The store that a tracer has to write to; ``None`` where Kafka is the store, to which spans go anyway."""
    from lightstream.store_views.stores import KafkaLightningStore
    from lightstream.store_views.stores.http import ForwardingStore

    while isinstance(store, ForwardingStore):
        store = store.store
    return None if isinstance(store, KafkaLightningStore) else store
