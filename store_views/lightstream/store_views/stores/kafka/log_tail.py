"""A thread that follows ``rollouts``, ``resources`` and ``workers`` and wakes whoever waits for something there."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

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
from lightstream.schemas.errors import DecodeError, ServiceUnavailableError
from lightstream.schemas.records import Record, ResourcesRecord, RolloutState, WorkerHeartbeat
from lightstream.schemas.topics import RESOURCES, ROLLOUTS, WORKERS

from .._loop_calls import gathered
from .dispatch import Dispatch
from .resource_versions import Older, ResourceVersions
from .waiters import Waiters
from .worker_records import WorkerRecords

__all__ = ["LogTail", "Tell"]

logger = logging.getLogger(__name__)

Tell: TypeAlias = Callable[[RolloutState | None], None]
"""Called once, on whatever thread, with the state that carries a verdict; with ``None`` if the store closes before."""

GATHERING: dict[str, Any] = {"queued.min.messages": 1, "fetch.queue.backoff.ms": 2}
"""The consumer fetches again once what it has was taken, after two milliseconds if that was not at once. While much
comes, the broker gathers as long: a store has fewer and larger turns, for 6% less processor in all."""

POLL_TIMEOUT_S = 0.1
TICK_INTERVAL_S = 0.1
METADATA_TIMEOUT_S = 10.0
CATCH_UP_TIMEOUT_S = 30.0
RECORDS_PER_POLL_MAX = 1000


class LogTail:
    """Reads every partition of ``rollouts`` from its end, ``resources`` and ``workers`` from their beginning.

    Only records of rollouts that somebody waits for are decoded, so a busy cluster costs a waiter little.

    Args:
        older_resources: tells resources that are not kept here any more.
    """

    def __init__(self, settings: Settings, codec: Codec, older_resources: Older) -> None:
        self._settings = settings
        self._codec = codec
        self._lock = threading.Lock()
        self._judged: dict[str, int] = {}
        self._verdicts: dict[str, list[Tell]] = {}
        self._terminal: dict[str, list[Future[RolloutState]]] = {}
        self.resources = ResourceVersions(older_resources)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._rollouts_topic = ROLLOUTS.full_name(settings.topic_prefix)
        self._resources_topic = RESOURCES.full_name(settings.topic_prefix)
        self.workers = WorkerRecords()
        self._read_up_to: dict[int, int] = {}
        self._answered_at: dict[int, int] = {}
        self._behind: set[str] = set()
        self._caught_up = threading.Event()
        self._behind_readers = Waiters(self._lock)
        self._dispatch: Dispatch | None = None
        self._often: list[Callable[[], None]] = []
        self._ticked_s = 0.0
        self._logged_errors: dict[str | None, int] = {}

    def start(self) -> None:
        """Begin to follow. When it returns, no state written from now on will be missed, and all resources are known.

        Raises:
            ServiceUnavailableError: Kafka does not answer, or the topics do not exist.
        """
        config = consumer_config(self._settings, group_id="lightstream-log-tails", read_committed=True)
        consumer = Consumer(config | GATHERING | {"enable.partition.eof": True})
        try:
            consumer.assign(self._assignment(consumer))
        except KafkaException as error:
            consumer.close()
            raise ServiceUnavailableError(f"Kafka does not answer: {error}.") from error
        self._thread = threading.Thread(target=self._run, args=(consumer,), name="lightstream-log-tail", daemon=True)
        self._thread.start()
        if not self._caught_up.wait(CATCH_UP_TIMEOUT_S):
            self.stop()
            raise ServiceUnavailableError(f"resources and workers were not read within {CATCH_UP_TIMEOUT_S:g} s.")

    def stop(self) -> None:
        """Stop following. Futures that wait are cancelled."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            tells = [tell for waiting in self._verdicts.values() for tell in waiting]
            ends = [future for futures in self._terminal.values() for future in futures]
            self._verdicts.clear()
            self._judged.clear()
        self.resources.stop()
        for tell in tells:
            tell(None)
        for future in ends:
            future.cancel()

    def expect_verdict(self, rollout_id: str, event_id: str, tell: Tell) -> None:
        """Tell of the state that judges the event ``event_id``. Ask before writing the event."""
        with self._lock:
            self._judged[rollout_id] = self._judged.get(rollout_id, 0) + 1
            self._verdicts.setdefault(event_id, []).append(tell)

    def forget_verdict(self, rollout_id: str, event_id: str, tell: Tell) -> None:
        """Nobody waits for it any more; nothing happens if it came before."""
        if event_id not in self._verdicts:
            return
        with self._lock:
            waiting = self._verdicts.get(event_id, [])
            if tell in waiting:
                waiting.remove(tell)
                self._waits_no_more(rollout_id, 1)
            if not waiting:
                self._verdicts.pop(event_id, None)

    def expect_terminal(self, rollout_id: str) -> Future[RolloutState]:
        """A future of the first terminal state of the rollout that is written from now on."""
        future: Future[RolloutState] = Future()
        with self._lock:
            self._terminal.setdefault(rollout_id, []).append(future)
        future.add_done_callback(partial(self._forget_end, rollout_id))  # no cycle: that future names itself
        return future

    def answered_at(self) -> dict[int, int]:
        """Of each partition of ``rollouts``, the offset of the last verdict or end that somebody here was told of."""
        with self._lock:
            return dict(self._answered_at)

    def answered(self, offsets: Mapping[int, int]) -> None:
        """Somebody else was told of these; whoever asks here knows of them now."""
        with self._lock:
            for partition, offset in offsets.items():
                self._answered_at[partition] = max(offset, self._answered_at.get(partition, -1))

    def read_up_to(self) -> dict[int, int]:
        """Of each partition of ``rollouts``, the last offset before which nothing will be seen here any more."""
        with self._lock:
            return {partition: offset - 1 for partition, offset in self._read_up_to.items() if offset > 0}

    def partitions(self) -> list[int]:
        """Those of ``rollouts``, and so of ``rollout-events``."""
        with self._lock:
            return sorted(self._read_up_to)

    def call_often(self, what: Callable[[], None]) -> None:
        """Call ``what`` about every :data:`TICK_INTERVAL_S` seconds, on the following thread; it must not block."""
        self._often.append(what)

    def tell(self, dispatch: Dispatch) -> None:
        """From now on, ``dispatch`` is told of queues, and of answers to its requests."""
        self._dispatch = dispatch
        self.call_often(dispatch.tick)

    async def until_read(self, timeout_s: float) -> bool:
        """Whether all that somebody here was told of has been read within ``timeout_s`` seconds."""
        return await self._behind_readers.until(self._has_read, timeout_s)

    def _has_read(self) -> bool:
        """Under the lock."""
        # Of a partition that the topic did not have when this began nothing is read, and nothing waited for.
        return all(self._read_up_to.get(place, offset + 1) > offset for place, offset in self._answered_at.items())

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

    def _run(self, consumer: Consumer) -> None:
        while not self._stopping.is_set():
            # consume() waits for a full batch or the timeout; a first poll() returns as soon as there is one.
            first = consumer.poll(self._poll_timeout_s())
            try:
                self._tick()
            except Exception:  # what is done now and then is done again; whoever waits for a record still gets it
                logger.exception("the store's housekeeping failed")
            if first is None:
                continue
            with gathered():
                for message in (first, *consumer.consume(RECORDS_PER_POLL_MAX, 0)):
                    try:
                        self._take(message)
                    except Exception:  # whoever waits for this one waits in vain; all others need not
                        logger.exception("%s[%s]@%s was not taken in", *_place(message))
                self._behind_readers.look()
        consumer.close()

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
        if message.topic() != self._rollouts_topic:
            with suppress(DecodeError):  # the view reports it; here it is only nothing to remember
                record = self._codec.decode(message.value())
                if isinstance(record, ResourcesRecord):
                    self.resources.read(record, message.offset() or 0)
                elif isinstance(record, WorkerHeartbeat):
                    self.workers.read(record, message.offset() or 0)
            return
        partition, offset = message.partition() or 0, message.offset() or 0
        key = (message.key() or b"").decode("utf-8", "replace")
        with self._lock:
            # Before the look at who is interested: whoever comes later asks the view for at least this record.
            self._read_up_to[partition] = offset + 1
            judged, awaited = key in self._judged, key in self._terminal
        headers = _headers(message)
        state = None
        if self._dispatch is not None and headers:
            state = self._hear(self._dispatch, headers, message.value(), partition, offset)
        if not judged and not (awaited and _may_be_terminal(headers)):
            return
        with suppress(DecodeError):  # as above
            record = self._codec.decode(message.value()) if state is None else state
            if isinstance(record, RolloutState):
                self._wake(key, record, partition, offset)

    def _hear(
        self, dispatch: Dispatch, headers: dict[str, bytes], value: bytes | None, partition: int, offset: int
    ) -> RolloutState | None:
        """Pass on what the headers say; the state, if it had to be decoded."""
        state: Record | None = None
        with suppress(DecodeError, ValueError):  # not written by a life cycle; the view reports it
            if QUEUE in headers:
                dispatch.on_queues(partition, read_queues(headers[QUEUE]))
            if ANSWERS in headers:
                request_id, still_to_come = read_answers(headers[ANSWERS])
                if dispatch.knows(request_id):
                    state = None if value is None else self._codec.decode(value)
                    self.answered({partition: offset})
                    dispatch.on_answer(request_id, state if isinstance(state, RolloutState) else None, still_to_come)
        return state if isinstance(state, RolloutState) else None

    def _poll_timeout_s(self) -> float:
        return POLL_TIMEOUT_S if self._dispatch is None else min(POLL_TIMEOUT_S, self._dispatch.due_in_s())

    def _tick(self) -> None:
        if self._dispatch is not None and self._dispatch.due_in_s() <= 0:
            self._dispatch.ask()
        now_s = time.monotonic()
        if now_s - self._ticked_s >= TICK_INTERVAL_S:
            self._ticked_s = now_s
            for call in self._often:
                call()

    def _reached_end(self, message: Message) -> None:
        topic = message.topic() or ""
        if topic == self._resources_topic:
            self.resources.passed((message.offset() or 0) - 1)
        self._behind.discard(topic)
        if not self._behind:
            self._caught_up.set()

    def _wake(self, rollout_id: str, state: RolloutState, partition: int, offset: int) -> None:
        with self._lock:
            self._answered_at[partition] = max(offset, self._answered_at.get(partition, -1))
            tells = self._verdicts.pop(state.verdict.event_id, ())
            self._waits_no_more(rollout_id, len(tells))
            ended = list(self._terminal.get(rollout_id, ())) if state.status.is_terminal else []
        for tell in tells:
            tell(state)
        for future in ended:
            if future.set_running_or_notify_cancel():
                future.set_result(state)

    def _waits_no_more(self, rollout_id: str, count: int) -> None:
        """So many verdicts on the rollout are not waited for any more. Under the lock."""
        left = self._judged.get(rollout_id, 0) - count
        if left > 0:
            self._judged[rollout_id] = left
        else:
            self._judged.pop(rollout_id, None)

    def _forget_end(self, rollout_id: str, waiter: Future[RolloutState]) -> None:
        with self._lock:
            others = [future for future in self._terminal[rollout_id] if future is not waiter]
            if others:
                self._terminal[rollout_id] = others
            else:
                del self._terminal[rollout_id]


def _place(message: Message) -> tuple[str | None, int | None, int | None]:
    return message.topic(), message.partition(), message.offset()


def _headers(message: Message) -> dict[str, bytes]:
    headers = message.headers() or []
    pairs = headers.items() if isinstance(headers, dict) else headers
    return {name: value for name, value in pairs if isinstance(value, bytes)}


def _may_be_terminal(headers: dict[str, bytes]) -> bool:
    """Whether the state may be an end: who waits for one need not decode the others."""
    try:
        return read_state(headers[STATE])[1].is_terminal
    except (KeyError, ValueError):  # not written by a life cycle: whoever decodes it sees
        return True
