"""Faust's Kafka transport, with the fetch settings that Faust itself does not offer and a commit of given offsets."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread, Consumer, Transport
from faust.types import TP

__all__ = ["LightstreamConsumer", "LightstreamTransport"]

FETCH_MAX_WAIT_MS = 100
"""How long the broker holds a fetch that finds nothing. Faust fixes 1,500 ms; but aiokafka keeps one fetch per broker
in flight, so a partition that was left out of it (its records were still in hand) waits for it to return."""


class _ConsumerThread(AIOKafkaConsumerThread):
    logger = logging.getLogger("faust.transport")

    def _create_worker_consumer(self, transport: Transport) -> Any:
        consumer: Any = super()._create_worker_consumer(transport)
        consumer._fetch_max_wait_ms = FETCH_MAX_WAIT_MS
        return consumer


class LightstreamConsumer(Consumer):
    """Commits what it is told to, instead of what was acknowledged record by record."""

    logger = logging.getLogger("faust.transport")

    def _new_consumer_thread(self) -> AIOKafkaConsumerThread:
        return _ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    async def commit_offsets(self, offsets: Mapping[TP, int]) -> bool:
        """Commit the next offset to read per partition; those no longer assigned are left out.

        Returns:
            Whether they were committed; not so in the middle of a rebalance.
        """
        return await self._commit(offsets)


class LightstreamTransport(Transport):
    """What the app is given as its transport."""

    Consumer = LightstreamConsumer
