"""Follows ``rollouts``, ``resources`` and ``workers``, and wakes the store's callers who wait for a record there.

Invariants:

- ``rollouts`` is read from its end as of the start: older states are the view's. The other two are compacted and small,
  and are read whole.
- A record is decoded only if somebody waits for its rollout or request, so a busy cluster costs a waiter little.
- A thread polls Kafka; all state changes in the event loop, a batch at a time and in log order.
- "Read up to offset n" is told only after everything up to n has woken its waiters.
- If a topic can no longer be read, every waiting call raises why, and so does every later one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Message

from lightstream.runtime.kafka import (
    ANSWERS,
    QUEUE,
    STATE,
    TopicTail,
    read_answers,
    read_queues,
    read_state,
)
from lightstream.runtime.settings import Settings
from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import LightstreamError, ServiceUnavailableError
from lightstream.schemas.records import ResourcesRecord, RolloutState, WorkerHeartbeat
from lightstream.schemas.topics import RESOURCES, ROLLOUTS, WORKERS

from ..condition import Condition
from ..endings import Endings
from .dispatcher import Dispatcher
from .resources import ResourceVersions
from .worker_registry import WorkerRegistry

logger = logging.getLogger(__name__)

GATHERING: dict[str, Any] = {"queued.min.messages": 1, "fetch.queue.backoff.ms": 2}
"""The consumer fetches again once what it has was taken, after two milliseconds if that was not at once. While much
comes, the broker gathers as long: a store has fewer and larger batches, for 6% less processor in all."""

POLL_TIMEOUT_S = 0.1
CATCH_UP_TIMEOUT_S = 30.0


class LogTail:
    """Reads every partition of ``rollouts`` from its end, ``resources`` and ``workers`` from their beginning.

    Belongs to one event loop.

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
        self._topics: TopicTail | None = None

    def unready(self) -> str | None:
        """Say which version of Lightstream is needed to read the records that were passed over; ``None`` if there are
        none."""
        return None if self._topics is None else self._topics.unready()

    async def start(self) -> None:
        """Begin to follow. When it returns, no state written from now on will be missed, and all resources are known.

        Raises:
            ServiceUnavailableError: Kafka does not answer, or a topic does not exist or may not be read.
        """
        topics = await asyncio.get_running_loop().run_in_executor(self._thread, self._open)
        self._topics = topics
        self._task = asyncio.create_task(self._follow(topics))
        try:
            await asyncio.wait_for(self._caught_up.wait(), CATCH_UP_TIMEOUT_S)
        except TimeoutError as error:
            await self.stop()
            raise ServiceUnavailableError(
                f"not read within {CATCH_UP_TIMEOUT_S:g} s: {', '.join(sorted(self._behind))}.",
                next_step="Does Kafka answer? `lightstream status` shows it.",
            ) from error
        if self._failure is not None:
            await self.stop()
            raise self._failure

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
        """The last consumed offset of each partition of ``rollouts``."""
        return {partition: offset - 1 for partition, offset in self._read_up_to.items() if offset > 0}

    def partitions(self) -> list[int]:
        """The partitions of ``rollouts``, which are the partitions of ``rollout-events``, too."""
        return sorted(self._read_up_to)

    def attach(self, dispatcher: Dispatcher) -> None:
        """From now on, ``dispatcher`` is told of queues, and of answers to its requests."""
        self._dispatcher = dispatcher

    async def until_read(self, timeout_s: float) -> bool:
        """Whether all that callers here were told of has been read within ``timeout_s`` seconds.

        Raises:
            ServiceUnavailableError: a topic can no longer be read, or the store was closed.
        """
        has_read = await self._progress.wait_for(lambda: self._failure is not None or self._has_read(), timeout_s)
        if self._failure is not None:
            raise self._failure
        return has_read

    def _has_read(self) -> bool:
        # Of a partition that the topic did not have when this began nothing is read, and nothing waited for.
        return all(self._read_up_to.get(place, offset + 1) > offset for place, offset in self._reported_at.items())

    def _open(self) -> TopicTail:
        """In the thread."""
        topics = TopicTail(
            self._settings, (ROLLOUTS, RESOURCES, WORKERS), group_id="lightstream-log-tails", limits=GATHERING
        )
        try:
            self._read_up_to = topics.end_offsets(ROLLOUTS, topics.partitions()[ROLLOUTS])
        except LightstreamError:
            topics.close()
            raise
        topics.follow(ROLLOUTS, self._read_up_to)
        for topic in (RESOURCES, WORKERS):
            topics.follow(topic, {0: OFFSET_BEGINNING})
            self._behind.add(topic.full_name(self._settings.topic_prefix))
        return topics

    async def _follow(self, topics: TopicTail) -> None:
        loop = asyncio.get_running_loop()
        try:
            while not self._stopping:
                batch = await loop.run_in_executor(self._thread, topics.poll, POLL_TIMEOUT_S)
                for message in batch.records:
                    self._receive(topics, message)
                for topic, _, offset in batch.reached:
                    self._reached_end(topic, offset)
                self._progress.notify()
        except LightstreamError as error:
            logger.error("the store no longer reads its topics: %s", error)
            self._end(error)
        finally:
            if not self._stopping and self._failure is None:  # whatever ended this: nobody waits for what is never read
                self._end(ServiceUnavailableError("the store no longer reads its topics.", next_step="See its log."))
            await loop.run_in_executor(self._thread, topics.close)

    def _receive(self, topics: TopicTail, message: Message) -> None:
        partition, offset = message.partition() or 0, message.offset() or 0
        if message.topic() == self._resources_topic and message.value() is None:
            self.resources.deleted((message.key() or b"").decode("utf-8", "replace"), offset)
            return
        if message.topic() != self._rollouts_topic:
            record = topics.decode(self._codec, message)
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
            state = self._pass_on(topics, self._dispatcher, headers, message)
        if key in self._results or (self.endings.awaits(key) and _may_be_terminal(headers)):
            record = topics.decode(self._codec, message) if state is None else state
            if isinstance(record, RolloutState):
                self._report(key, record, partition, offset)

    def _pass_on(
        self, topics: TopicTail, dispatcher: Dispatcher, headers: dict[str, bytes], message: Message
    ) -> RolloutState | None:
        """Tell the dispatcher what the headers say; the state, if it had to be decoded."""
        partition, offset = message.partition() or 0, message.offset() or 0
        try:
            queues = read_queues(headers[QUEUE]) if QUEUE in headers else None
            request_id, still_to_come = read_answers(headers[ANSWERS]) if ANSWERS in headers else ("", 0)
        except ValueError as reason:  # not written by a life cycle
            topics.pass_over(message, reason)
            return None
        if queues is not None:
            dispatcher.on_queues(partition, queues)
        if not request_id or not dispatcher.knows(request_id):
            return None
        state = None if message.value() is None else topics.decode(self._codec, message)
        self.observe({partition: offset})
        dispatcher.on_answer(request_id, state if isinstance(state, RolloutState) else None, still_to_come)
        return state if isinstance(state, RolloutState) else None

    def _reached_end(self, topic: str, offset: int) -> None:
        if topic == self._resources_topic:
            self.resources.passed(offset - 1)
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
        failure = None if self._stopping else error
        self.endings.close(failure)
        self.resources.stop(failure)
        self._caught_up.set()
        self._progress.notify()


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
