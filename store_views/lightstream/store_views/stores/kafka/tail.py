"""Follows ``rollouts``, ``resources`` and ``workers``, and wakes callers that wait for something there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from lightstream.runtime.kafka import (
    ANSWERS,
    QUEUE,
    STATE,
    consumer_config,
    kafka_unavailable,
    read_answers,
    read_queues,
    read_state,
)
from lightstream.runtime.settings import Settings
from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import DecodeError, LightstreamError, ServiceUnavailableError
from lightstream.schemas.records import Record, ResourcesRecord, RolloutState, WorkerHeartbeat
from lightstream.schemas.topics import RESOURCES, ROLLOUTS, WORKERS

from ..condition import Condition
from ..endings import Endings
from .dispatcher import Dispatcher
from .resources import ResourceVersions
from .worker_registry import WorkerRegistry

__all__ = ["LogTail"]

logger = logging.getLogger(__name__)

GATHERING: dict[str, Any] = {"queued.min.messages": 1, "fetch.queue.backoff.ms": 2}
"""The consumer fetches again once what it has was taken, after two milliseconds if that was not at once. While much
comes, the broker gathers as long: a store has fewer and larger batches, for 6% less processor in all."""

POLL_TIMEOUT_S = 0.1
METADATA_TIMEOUT_S = 10.0
CATCH_UP_TIMEOUT_S = 30.0
RECORDS_PER_POLL_MAX = 1000


class LogTail:
    """Reads every partition of ``rollouts`` from its end, ``resources`` and ``workers`` from their beginning.

    Only records of rollouts that somebody waits for are decoded, so a busy cluster costs a waiter little. Belongs to
    one event loop; a thread waits for records.

    Attributes:
        endings: tells of rollouts that end.
        resources, workers: what was read of these topics.
    """

    def __init__(self, settings: Settings, codec: Codec, resources: ResourceVersions, workers: WorkerRegistry) -> None:
        self._settings = settings
        self._codec = codec
        self.endings = Endings()
        self.resources = resources
        self.workers = workers
        self._results: dict[str, dict[str, list[asyncio.Future[RolloutState]]]] = {}
        self._rollouts_topic = ROLLOUTS.full_name(settings.topic_prefix)
        self._resources_topic = RESOURCES.full_name(settings.topic_prefix)
        self._read_up_to: dict[int, int] = {}
        self._reported_at: dict[int, int] = {}
        self._progress = Condition()
        self._behind: set[str] = set()
        self._caught_up = asyncio.Event()
        self._dispatcher: Dispatcher | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lightstream-log-tail")
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._failure: LightstreamError | None = None
        self._logged_errors: dict[str | None, int] = {}

    async def start(self) -> None:
        """Begin to follow. When it returns, no state written from now on will be missed, and all resources are known.

        Raises:
            ServiceUnavailableError: Kafka does not answer, or the topics do not exist.
        """
        consumer = await asyncio.get_running_loop().run_in_executor(self._thread, self._open)
        self._task = asyncio.create_task(self._follow(consumer))
        try:
            await asyncio.wait_for(self._caught_up.wait(), CATCH_UP_TIMEOUT_S)
        except TimeoutError as error:
            await self.stop()
            raise ServiceUnavailableError(
                f"resources and workers were not read within {CATCH_UP_TIMEOUT_S:g} s."
            ) from error

    async def stop(self) -> None:
        """Stop following. Waits for results fail; those for ends and resources return what is known."""
        self._stopping = True
        if self._task is not None:
            await asyncio.wait([self._task])
        self._thread.shutdown(wait=False)
        self._end(
            ServiceUnavailableError(
                "the store was closed before the result came.",
                next_step="The write may still take effect; ask another store how it came out.",
            )
        )

    def expect_result(self, rollout_id: str, event_id: str) -> asyncio.Future[RolloutState]:
        """A future of the state that carries the result of that event. Ask before writing the event."""
        future: asyncio.Future[RolloutState] = asyncio.get_running_loop().create_future()
        if self._failure is not None:
            future.set_exception(self._failure)
        else:
            self._results.setdefault(rollout_id, {}).setdefault(event_id, []).append(future)
        return future

    def forget_result(self, rollout_id: str, event_id: str, future: asyncio.Future[RolloutState]) -> None:
        """Nobody waits for it any more; nothing happens if it came before."""
        waiting = self._results.get(rollout_id, {}).get(event_id, [])
        if future in waiting:
            waiting.remove(future)
            if not waiting:
                self._pop_results(rollout_id, event_id)

    def reported_at(self) -> dict[int, int]:
        """Of each partition of ``rollouts``, the offset of the last result or end that a caller was told of."""
        return dict(self._reported_at)

    def observe(self, offsets: Mapping[int, int]) -> None:
        """A caller was told of the records at these offsets elsewhere."""
        for partition, offset in offsets.items():
            self._reported_at[partition] = max(offset, self._reported_at.get(partition, -1))

    def read_up_to(self) -> dict[int, int]:
        """Of each partition of ``rollouts``, the last offset before which nothing will be seen here any more."""
        return {partition: offset - 1 for partition, offset in self._read_up_to.items() if offset > 0}

    def partitions(self) -> list[int]:
        """Those of ``rollouts``, and so of ``rollout-events``."""
        return sorted(self._read_up_to)

    def attach(self, dispatcher: Dispatcher) -> None:
        """From now on, ``dispatcher`` is told of queues, and of answers to its requests."""
        self._dispatcher = dispatcher

    async def until_read(self, timeout_s: float) -> bool:
        """Whether all that callers here were told of has been read within ``timeout_s`` seconds."""
        return await self._progress.wait_for(self._has_read, timeout_s)

    def _has_read(self) -> bool:
        # Of a partition that the topic did not have when this began nothing is read, and nothing waited for.
        return all(self._read_up_to.get(place, offset + 1) > offset for place, offset in self._reported_at.items())

    def _open(self) -> Consumer:
        """In the thread."""
        config = consumer_config(self._settings, group_id="lightstream-log-tails", read_committed=True)
        consumer = Consumer(config | GATHERING | {"enable.partition.eof": True})
        try:
            consumer.assign(self._assignment(consumer))
        except KafkaException as error:
            consumer.close()
            raise ServiceUnavailableError(f"Kafka does not answer: {error}.") from error
        except LightstreamError:
            consumer.close()
            raise
        return consumer

    def _assignment(self, consumer: Consumer) -> list[TopicPartition]:
        whole = [topic.full_name(self._settings.topic_prefix) for topic in (RESOURCES, WORKERS)]
        topics = consumer.list_topics(timeout=METADATA_TIMEOUT_S).topics
        missing = [name for name in (self._rollouts_topic, *whole) if name not in topics]
        if missing:
            raise ServiceUnavailableError(
                f"the cluster has no topic {missing[0]!r}.", next_step="Create them with `lightstream topics create`."
            )
        self._behind = set(whole)
        assignment = [TopicPartition(name, 0, OFFSET_BEGINNING) for name in whole]
        for partition in topics[self._rollouts_topic].partitions:
            _, end = consumer.get_watermark_offsets(
                TopicPartition(self._rollouts_topic, partition), timeout=METADATA_TIMEOUT_S
            )
            self._read_up_to[partition] = end
            assignment.append(TopicPartition(self._rollouts_topic, partition, end))
        return assignment

    async def _follow(self, consumer: Consumer) -> None:
        loop = asyncio.get_running_loop()
        try:
            while not self._stopping:
                for message in await loop.run_in_executor(self._thread, _poll, consumer):
                    self._take(message)
                self._progress.notify()
        except LightstreamError as error:
            self._end(error)
        finally:
            await loop.run_in_executor(self._thread, consumer.close)

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is None:
            self._logged_errors.pop(message.topic(), None)
            self._receive(message)
        elif error.code() == KafkaError._PARTITION_EOF:  # confluent-kafka's public name for it
            self._reached_end(message)
        elif self._logged_errors.get(message.topic()) != error.code():
            # Callers wait until their own time is over: a broker that restarts is back before that.
            self._logged_errors[message.topic()] = error.code()
            trouble = kafka_unavailable(KafkaException(error), what=f"topic {message.topic()!r} cannot be read")
            logger.warning("the store does not get on: %s %s", trouble.message, trouble.next_step)

    def _receive(self, message: Message) -> None:
        partition, offset = message.partition() or 0, message.offset() or 0
        if message.topic() != self._rollouts_topic:
            with suppress(DecodeError):  # the view reports it; here it is only nothing to remember
                record = self._codec.decode(message.value())
                if isinstance(record, ResourcesRecord):
                    self.resources.read(record, offset)
                elif isinstance(record, WorkerHeartbeat):
                    self.workers.read(record, offset)
            return
        key = (message.key() or b"").decode("utf-8", "replace")
        self._read_up_to[partition] = offset + 1
        headers = _headers(message)
        state = None
        if self._dispatcher is not None and headers:
            state = self._pass_on(self._dispatcher, headers, message.value(), partition, offset)
        if key in self._results or (self.endings.awaits(key) and _may_be_terminal(headers)):
            with suppress(DecodeError):  # as above
                record = self._codec.decode(message.value()) if state is None else state
                if isinstance(record, RolloutState):
                    self._report(key, record, partition, offset)

    def _pass_on(
        self, dispatcher: Dispatcher, headers: dict[str, bytes], value: bytes | None, partition: int, offset: int
    ) -> RolloutState | None:
        """Tell the dispatcher what the headers say; the state, if it had to be decoded."""
        state: Record | None = None
        with suppress(DecodeError, ValueError):  # not written by a life cycle; the view reports it
            if QUEUE in headers:
                dispatcher.on_queues(partition, read_queues(headers[QUEUE]))
            if ANSWERS in headers:
                request_id, still_to_come = read_answers(headers[ANSWERS])
                if dispatcher.knows(request_id):
                    state = None if value is None else self._codec.decode(value)
                    self.observe({partition: offset})
                    dispatcher.on_answer(request_id, state if isinstance(state, RolloutState) else None, still_to_come)
        return state if isinstance(state, RolloutState) else None

    def _reached_end(self, message: Message) -> None:
        topic = message.topic() or ""
        if topic == self._resources_topic:
            self.resources.passed((message.offset() or 0) - 1)
        self._behind.discard(topic)
        if not self._behind:
            self._caught_up.set()

    def _report(self, rollout_id: str, state: RolloutState, partition: int, offset: int) -> None:
        self.observe({partition: offset})
        for future in self._pop_results(rollout_id, state.verdict.event_id):
            if not future.done():
                future.set_result(state)
        if state.status.is_terminal:
            self.endings.ended(state)

    def _pop_results(self, rollout_id: str, event_id: str) -> Sequence[asyncio.Future[RolloutState]]:
        of_rollout = self._results.get(rollout_id, {})
        popped = of_rollout.pop(event_id, ())
        if not of_rollout:
            self._results.pop(rollout_id, None)
        return popped

    def _end(self, error: LightstreamError) -> None:
        """Nothing will be read any more."""
        self._failure = self._failure or error
        results, self._results = self._results, {}
        for future in [each for of_rollout in results.values() for futures in of_rollout.values() for each in futures]:
            if not future.done():
                future.set_exception(error)
        if self._dispatcher is not None:
            self._dispatcher.fail(error)
        self.endings.close()
        self.resources.stop()


def _poll(consumer: Consumer) -> Sequence[Message]:
    """The next records; in the thread. The first poll returns as soon as there is one, the rest is what is there."""
    first = consumer.poll(POLL_TIMEOUT_S)
    return () if first is None else (first, *consumer.consume(RECORDS_PER_POLL_MAX, 0))


def _headers(message: Message) -> dict[str, bytes]:
    headers = message.headers() or []
    pairs = headers.items() if isinstance(headers, dict) else headers
    return {name: value for name, value in pairs if isinstance(value, bytes)}


def _may_be_terminal(headers: dict[str, bytes]) -> bool:
    """Whether the state may be an end: a caller that waits for one need not decode the others."""
    try:
        return read_state(headers[STATE])[1].is_terminal
    except (KeyError, ValueError):  # not written by a life cycle: decoding it shows
        return True
