"""Faust's Kafka transport with additions: records in bundles, a short fetch wait, a commit by offset."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from faust.transport.consumer import RecordMap
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread, Consumer, Transport
from faust.types import TP

from lightstream.schemas.topics import ROLLOUT_EVENTS

from .inbox import Budget

RECORDS_IN_HAND_MAX = 4000
BYTES_IN_HAND_MAX = 64 * 1024 * 1024
"""Two records of the largest size."""

FETCH_WAIT_MS = 100
"""The broker holds a fetch that finds nothing this long; one record ends the wait. Faust fixes 1,500 ms; but aiokafka
keeps one fetch per broker in flight, so a partition that was left out of it (its records were still in use) waits for
it to return."""


class _ConsumerThread(AIOKafkaConsumerThread):
    logger = logging.getLogger("faust.transport")

    def _create_worker_consumer(self, transport: Transport) -> Any:
        consumer: Any = super()._create_worker_consumer(transport)
        consumer._fetch_max_wait_ms = FETCH_WAIT_MS  # an argument of aiokafka's constructor, which Faust fixes
        return consumer

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """Go back to what is committed, everywhere.

        aiokafka's own method leaves a partition where it is when 0 or nothing is committed; what was fetched and
        thrown away during a rebalance is then never delivered (seen: a partition that began at offset 20).
        """
        offsets: Mapping[TP, int] = await self.call_thread(self._seek_to_committed)
        return offsets

    async def _seek_to_committed(self) -> dict[Any, int | None]:
        consumer = self._ensure_consumer()
        offsets: dict[Any, int | None] = {}
        for tp in consumer.assignment():
            offsets[tp] = await consumer.committed(tp)
            if offsets[tp] is None:
                await consumer.seek_to_beginning(tp)
            else:
                consumer.seek(tp, offsets[tp])
        return offsets


class LightstreamConsumer(Consumer):
    """Delivers the records that a fetch brought for one topic as a single Faust event, and commits given offsets.

    Faust spends about 100 microseconds per event, most of it on four tasks; a bundle of records costs that once. The
    event's value is a list of aiokafka's ``ConsumerRecord``, of any of the topic's partitions, each in its order; the
    event's own partition and offset are those of one of them. (Faust drops such events only during a rebalance, and all
    partitions begin afresh after it: it need not know whose records they hold.)

    Attributes:
        budget: while it has no room, nothing is fetched. (Faust's own brake, a full stream buffer, makes it sleep for
            whole seconds.)
    """

    logger = logging.getLogger("faust.transport")

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.budget = Budget(RECORDS_IN_HAND_MAX, BYTES_IN_HAND_MAX)

    async def commit_offsets(self, offsets: Mapping[TP, int]) -> bool:
        """Commit the next offset to read per partition; partitions no longer assigned are left out.

        Returns:
            Whether they were committed; not so in the middle of a rebalance.
        """
        return await self._commit(offsets)

    async def _getmany(self, active_partitions: set[TP] | None, timeout: float) -> RecordMap:  # noqa: ASYNC109  # Faust's signature
        if not await self.budget.wait_for_room(timeout):
            return {}
        fetched = await super()._getmany(active_partitions, timeout)
        bundles: dict[str, tuple[TP, list[Any]]] = {}
        for tp, records in fetched.items():
            if records:
                bundles.setdefault(tp.topic, (tp, []))[1].extend(records)
        # Events first: what they lead to is on its way to Kafka while the spans are assembled.
        in_order = sorted(bundles.values(), key=lambda bundle: not bundle[0].topic.endswith(ROLLOUT_EVENTS.name))
        return {tp: [replace(_last_of(tp, records), value=records)] for tp, records in in_order}

    def _new_consumer_thread(self) -> AIOKafkaConsumerThread:
        return _ConsumerThread(self, loop=self.loop, beacon=self.beacon)


def _last_of(tp: TP, records: Sequence[Any]) -> Any:
    return next(record for record in reversed(records) if record.partition == tp.partition)


class LightstreamTransport(Transport):
    """The transport of the worker's app."""

    Consumer = LightstreamConsumer
