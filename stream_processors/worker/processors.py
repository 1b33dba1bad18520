"""The Faust agents and their partitions: built when assigned, dropped when revoked, committed in order."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import groupby
from operator import attrgetter
from typing import Any

import faust
from faust.types import TP

from lightstream.runtime.clock import NANOS_PER_MILLISECOND
from lightstream.runtime.disk import DiskRoom
from lightstream.runtime.kafka import KafkaContact, kafka_unavailable, writer_in
from lightstream.runtime.settings import Settings
from lightstream.schemas.topics import Topic

from .inbox import Inbox, LogRecord
from .partition_task import PartitionHandler, PartitionTask
from .transport import LightstreamConsumer
from .watchdog import CHECK_INTERVAL_S, Watchdog

logger = logging.getLogger(__name__)

COMMIT_INTERVAL_S = 0.5
"""A killed worker leaves this many seconds of work to be done again."""

TICK_INTERVAL_S = 0.1
"""A deadline is noticed at most this late."""

STOP_GRACE_S = 5.0
"""For the batches in progress when the worker stops."""

HandlerFactory = Callable[[int], PartitionHandler]


class Processors:
    """Connects Faust's streams with one :class:`PartitionTask` per assigned partition.

    Offsets are committed explicitly: the topics are declared without Faust's acknowledgements, which count record by
    record, acknowledge what is skipped during a rebalance, and would keep every record of an open attempt in memory.

    Attributes:
        failed: resolves with the first error of any partition; the process then ends without committing its batch.
        ready: set once the first assignment has been recovered.
    """

    def __init__(
        self, app: faust.App, settings: Settings, watchdog: Watchdog, factories: Mapping[Topic, HandlerFactory]
    ) -> None:
        self._app = app
        self._watchdog = watchdog
        self._rebalancing = True
        self._factories = {topic.full_name(settings.topic_prefix): make for topic, make in factories.items()}
        self.room = DiskRoom(settings)
        self._tasks: dict[TP, PartitionTask] = {}
        self._committed: dict[TP, int] = {}
        self._background: list[asyncio.Task[None]] = []
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self.ready = asyncio.Event()
        for name in self._factories:
            self._add_agent(name)
        for faust_signal, handler in (
            (app.on_partitions_assigned, self._assigned),
            (app.on_partitions_revoked, self._revoked),
        ):
            connect: Any = faust_signal.connect  # mode's handler type fits no coroutine function
            connect(handler)

    def lag_records(self, kafka: KafkaContact) -> int:
        """Number of present records of its partitions that the worker has not taken up. Any thread.

        Raises:
            ServiceUnavailableError: Kafka does not answer; said within two seconds, so that whoever asks for health
                does not take the worker for dead.
        """
        if kafka.silent_s() != 0.0:
            raise kafka_unavailable(TimeoutError())
        positions = self._positions()
        ends = kafka.end_offsets(positions)
        return sum(max(0, ends[place] - position) for place, position in positions.items())

    def unread(self) -> Counter[str]:
        """Version of Lightstream -> how many records wait for it. Any thread."""
        counts: Counter[str] = Counter()
        for task in list(self._tasks.values()):
            counts.update(dict(task.handler.unread.counts))
        return counts

    def _positions(self) -> dict[TP, int]:
        """Next offset that each partition's task expects."""
        return {tp: task.position for tp, task in list(self._tasks.items()) if task.position is not None}

    def start(self) -> None:
        """Begin to commit, to tick and to watch."""
        for loop in (self._commit_loop(), self._tick_loop(), self._watch_loop()):
            task = asyncio.create_task(loop)
            task.add_done_callback(self._background_done)
            self._background.append(task)

    async def stop(self, *, commit: bool) -> None:
        """Finish the batches in progress, commit, and let go. The app still runs; stop it afterwards.

        Args:
            commit: False after Faust failed: the thread that commits may have ended then.
        """
        for task in self._background:
            task.cancel()
        await asyncio.gather(*(task.stop(STOP_GRACE_S) for task in self._tasks.values()))
        if commit and not self.failed.done():
            await self._commit()
        self._tasks.clear()

    def _add_agent(self, topic_name: str) -> None:
        topic = self._app.topic(topic_name, key_type=bytes, value_type=bytes, acks=False, allow_empty=True)

        async def take(stream: Any) -> None:
            async for event in stream.events():
                for partition, records in groupby(event.message.value, attrgetter("partition")):
                    task = self._tasks.get(TP(topic_name, partition))
                    if task is not None:  # else it was revoked a moment ago: its new worker reads the records
                        task.inbox.put(
                            [
                                LogRecord(
                                    r.topic,
                                    r.partition,
                                    r.offset,
                                    r.key,
                                    r.value,
                                    r.timestamp * NANOS_PER_MILLISECOND,
                                    writer_in(r.headers),
                                )
                                for r in records
                            ]
                        )

        self._app.agent(topic, name=f"lightstream.{topic_name}", concurrency=1)(take)

    async def _assigned(self, _app: Any, *arguments: Any, **_: Any) -> None:
        assigned: set[TP] = arguments[0]
        # Faust goes back to the committed offsets of all partitions, kept ones too: so all begin afresh.
        await self._drop(set(self._tasks))
        for tp in sorted(assigned):
            make = self._factories.get(tp.topic)
            if make is not None:
                self._tasks[tp] = PartitionTask(
                    make(tp.partition), Inbox(self._consumer().budget), self._fail, self.room
                )
        logger.info("assigned: %s", ", ".join(f"{p.topic}[{p.partition}]" for p in sorted(assigned)) or "nothing")
        self._rebalancing = False
        if not self.ready.is_set():
            waiter = asyncio.create_task(self._wait_recovered(list(self._tasks.values())))
            waiter.add_done_callback(self._background_done)
            self._background.append(waiter)

    async def _revoked(self, _app: Any, *arguments: Any, **_: Any) -> None:
        revoked: set[TP] = arguments[0]
        self._rebalancing = True
        await self._commit()
        await self._drop(revoked)

    async def _drop(self, partitions: set[TP]) -> None:
        dropped = [task for tp in partitions if (task := self._tasks.pop(tp, None)) is not None]
        for tp in partitions:
            self._committed.pop(tp, None)
        await asyncio.gather(*(task.stop(0.0) for task in dropped))

    async def _wait_recovered(self, tasks: list[PartitionTask]) -> None:
        for task in tasks:
            await task.recovered.wait()
        self.ready.set()

    async def _commit_loop(self) -> None:
        while True:
            await asyncio.sleep(COMMIT_INTERVAL_S)
            await self._commit()

    async def _commit(self) -> None:
        offsets = {
            tp: task.committable
            for tp, task in self._tasks.items()
            if task.committable is not None and task.committable != self._committed.get(tp)
        }
        if not offsets:
            return
        if await self._consumer().commit_offsets(offsets):
            self._committed.update(offsets)

    def _consumer(self) -> LightstreamConsumer:
        consumer = self._app.consumer
        assert isinstance(consumer, LightstreamConsumer)  # noqa: S101  # the transport makes no other
        return consumer

    async def _tick_loop(self) -> None:
        while True:
            await asyncio.sleep(TICK_INTERVAL_S)
            for task in list(self._tasks.values()):
                if task.recovered.is_set():
                    await task.handler.tick()

    async def _watch_loop(self) -> None:
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            if self.room() is not None:
                self._watchdog.forget()  # it pauses
                continue
            await asyncio.to_thread(self._watchdog.check, self._positions(), self._rebalancing)

    def _background_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self.failed.done():
            self.failed.set_result(error)
