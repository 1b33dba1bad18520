"""Faust goes back to the committed offsets after a rebalance; with nothing committed, that is the beginning."""

from __future__ import annotations

import asyncio
from typing import Any

from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.settings import Settings
from lightstream.schemas.topics import SPANS
from lightstream.stream_processors.worker.app import make_app

from .harness import span

RECORDS = 5
WAIT_S = 300.0


def test_where_nothing_is_committed_the_partition_is_read_from_its_beginning_again(settings: Settings) -> None:
    publisher = KafkaPublisher(settings, linger_ms=0.0)
    for number in range(RECORDS):
        publisher.publish(SPANS, "r", span("r", number)).result()
    publisher.close()

    async def scenario() -> list[int]:
        app = make_app(settings)
        offsets: asyncio.Queue[int] = asyncio.Queue()

        async def take(stream: Any) -> None:
            async for event in stream.events():
                for record in event.message.value:
                    offsets.put_nowait(record.offset)

        app.agent(app.topic(SPANS.full_name(settings.topic_prefix), acks=False, allow_empty=True))(take)
        await app.start()
        try:
            seen = [await asyncio.wait_for(offsets.get(), WAIT_S) for _ in range(RECORDS)]
            consumer: Any = app.consumer
            await consumer.perform_seek()
            return seen + [await asyncio.wait_for(offsets.get(), WAIT_S) for _ in range(RECORDS)]
        finally:
            await app.stop()

    assert asyncio.run(scenario()) == [*range(RECORDS), *range(RECORDS)]
