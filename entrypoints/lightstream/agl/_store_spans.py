"""Spans that go into a store, because it is not Kafka's, to which they go anyway."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Future
from typing import TYPE_CHECKING

from lightstream.schemas.errors import PublishError, StoreError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.records import Record, SpanRecord
from lightstream.schemas.topics import Topic

if TYPE_CHECKING:
    from lightstream.runtime.kafka import Headers, Instead, Position

__all__ = ["StorePublisher", "store_for_spans"]

logger = logging.getLogger(__name__)


def store_for_spans(store: LightningStore) -> LightningStore | None:
    """The store that spans have to be written into; ``None`` where Kafka is the store."""
    from lightstream.store_views.stores import KafkaLightningStore
    from lightstream.store_views.stores.forwarding import ForwardingStore

    while isinstance(store, ForwardingStore):
        store = store.store
    return None if isinstance(store, KafkaLightningStore) else store


class StorePublisher:
    """A :class:`~lightstream.runtime.kafka.Publisher` of the LLM proxy's spans, into a store. Used in an event loop.

    Spans of no attempt, which no store can keep, are named in the log and left out.
    """

    def __init__(self, store: LightningStore) -> None:
        self._store = store

    def publish(
        self,
        topic: Topic,
        key: str,
        record: Record | None,
        *,
        headers: Headers | None = None,
        partition: int = -1,
        instead: Instead | None = None,
    ) -> Future[Position]:
        if not isinstance(record, SpanRecord):
            raise PublishError(f"a store takes spans from the proxy, and no {type(record).__name__}")
        return asyncio.run_coroutine_threadsafe(self._add(topic, record), asyncio.get_running_loop())

    def flush(self, timeout_s: float) -> int:
        """Nothing is on its way: whoever publishes waits for it."""
        return 0

    async def _add(self, topic: Topic, record: SpanRecord) -> Position:
        from lightstream.runtime.kafka import Position
        from lightstream.store_views.stores.kafka.span_record import span_of_record

        nowhere = Position(topic.name, -1, -1)
        if not record.rollout_id or not record.attempt_id:
            logger.warning("a call without a rollout is not recorded: %s", record.attributes)
            return nowhere
        try:
            number = await self._store.get_next_span_sequence_id(record.rollout_id, record.attempt_id)
            await self._store.add_span(span_of_record(record.model_copy(update={"sequence_id": number})))
        except StoreError as error:
            raise PublishError(str(error)) from error
        return nowhere
