"""A thread that follows ``rollouts`` and ``resources`` and wakes whoever waits for something there."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from concurrent.futures import Future
from contextlib import suppress

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition

from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import DecodeError, ServiceUnavailableError
from lightstream.schemas.kafka import consumer_config
from lightstream.schemas.records import ResourcesRecord, RolloutState, RolloutStatus
from lightstream.schemas.settings import Settings
from lightstream.schemas.topics import RESOURCES, ROLLOUTS

__all__ = ["Follower"]

POLL_TIMEOUT_S = 0.1
METADATA_TIMEOUT_S = 10.0
RECORDS_PER_POLL_MAX = 1000
RESOURCES_KEPT_MAX = 10_000
"""Versions kept in memory (about 1 KB each); older ones are forgotten here, not in the log."""


class Follower:
    """Reads every partition of ``rollouts`` from its end, and ``resources`` from its beginning.

    Only records of rollouts that somebody waits for are decoded, so a busy cluster costs a waiter little.
    """

    def __init__(self, settings: Settings, codec: Codec) -> None:
        self._settings = settings
        self._codec = codec
        self._lock = threading.Lock()
        self._interest: Counter[str] = Counter()
        self._verdicts: dict[str, Future[RolloutState]] = {}
        self._terminal: dict[str, list[Future[RolloutState]]] = {}
        self._resources: OrderedDict[str, ResourcesRecord] = OrderedDict()
        self._resources_changed = threading.Condition(self._lock)
        self._latest_resources: ResourcesRecord | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._rollouts_topic = ROLLOUTS.full_name(settings.topic_prefix)

    def start(self) -> None:
        """Begin to follow. When it returns, no state written from now on will be missed.

        Raises:
            ServiceUnavailableError: Kafka does not answer, or the topics do not exist.
        """
        consumer = Consumer(consumer_config(self._settings, group_id="lightstream-followers", read_committed=True))
        try:
            consumer.assign(self._assignment(consumer))
        except KafkaException as error:
            consumer.close()
            raise ServiceUnavailableError(f"Kafka does not answer: {error}.") from error
        self._thread = threading.Thread(target=self._run, args=(consumer,), name="lightstream-follower", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop following. Futures that wait are cancelled."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            waiting = [*self._verdicts.values(), *(f for futures in self._terminal.values() for f in futures)]
            self._resources_changed.notify_all()
        for future in waiting:
            future.cancel()

    def expect_verdict(self, rollout_id: str, event_id: str) -> Future[RolloutState]:
        """A future of the state that judges the fact ``event_id``. Ask before writing the fact."""
        future: Future[RolloutState] = Future()
        with self._lock:
            self._interest[rollout_id] += 1
            self._verdicts[event_id] = future
        future.add_done_callback(lambda _: self._forget(rollout_id, event_id))
        return future

    def expect_terminal(self, rollout_id: str) -> Future[RolloutState]:
        """A future of the first terminal state of the rollout that is written from now on."""
        future: Future[RolloutState] = Future()
        with self._lock:
            self._interest[rollout_id] += 1
            self._terminal.setdefault(rollout_id, []).append(future)
        future.add_done_callback(lambda _: self._forget(rollout_id, None, future))
        return future

    def resources(self, resources_id: str | None, timeout_s: float) -> ResourcesRecord | None:
        """Resources by id, or the latest; waits up to ``timeout_s`` for them. ``None`` if they did not appear."""

        def found() -> ResourcesRecord | None:
            return self._latest_resources if resources_id is None else self._resources.get(resources_id)

        with self._resources_changed:
            self._resources_changed.wait_for(lambda: found() is not None or self._stopping.is_set(), timeout_s)
            return found()

    def _assignment(self, consumer: Consumer) -> list[TopicPartition]:
        resources_topic = RESOURCES.full_name(self._settings.topic_prefix)
        topics = consumer.list_topics(timeout=METADATA_TIMEOUT_S).topics
        missing = [name for name in (self._rollouts_topic, resources_topic) if name not in topics]
        if missing:
            raise ServiceUnavailableError(
                f"the cluster has no topic {missing[0]!r}.", next_step="Create them with `lightstream topics create`."
            )
        assignment = [TopicPartition(resources_topic, 0, OFFSET_BEGINNING)]
        for partition in topics[self._rollouts_topic].partitions:
            _, end = consumer.get_watermark_offsets(
                TopicPartition(self._rollouts_topic, partition), timeout=METADATA_TIMEOUT_S
            )
            assignment.append(TopicPartition(self._rollouts_topic, partition, end))
        return assignment

    def _run(self, consumer: Consumer) -> None:
        while not self._stopping.is_set():
            # consume() waits for a full batch or the timeout; a first poll() returns as soon as there is one.
            first = consumer.poll(POLL_TIMEOUT_S)
            if first is None:
                continue
            for message in (first, *consumer.consume(RECORDS_PER_POLL_MAX, 0)):
                if message.error() is None:
                    self._receive(message)
        consumer.close()

    def _receive(self, message: Message) -> None:
        if message.topic() != self._rollouts_topic:
            with suppress(DecodeError):  # the view reports it; here it is only not a resource
                record = self._codec.decode(message.value())
                if isinstance(record, ResourcesRecord):
                    self._remember(record)
            return
        key = (message.key() or b"").decode("utf-8", "replace")
        if key not in self._interest:
            return
        with suppress(DecodeError):  # as above
            state = self._codec.decode(message.value())
            if isinstance(state, RolloutState):
                self._wake(key, state)

    def _remember(self, record: ResourcesRecord) -> None:
        with self._resources_changed:
            self._resources[record.resources_id] = record
            self._latest_resources = record
            if len(self._resources) > RESOURCES_KEPT_MAX:
                self._resources.popitem(last=False)
            self._resources_changed.notify_all()

    def _wake(self, rollout_id: str, state: RolloutState) -> None:
        with self._lock:
            verdict = self._verdicts.get(state.verdict.event_id)
            ended = list(self._terminal.get(rollout_id, ())) if state.status.is_terminal else []
        for future in ([verdict] if verdict is not None else []) + ended:
            if future.set_running_or_notify_cancel():
                future.set_result(state)

    def _forget(self, rollout_id: str, event_id: str | None, waiter: Future[RolloutState] | None = None) -> None:
        with self._lock:
            if event_id is not None:
                self._verdicts.pop(event_id, None)
            if waiter is not None and rollout_id in self._terminal:
                self._terminal[rollout_id] = [f for f in self._terminal[rollout_id] if f is not waiter]
                if not self._terminal[rollout_id]:
                    del self._terminal[rollout_id]
            self._interest[rollout_id] -= 1
            if self._interest[rollout_id] <= 0:
                del self._interest[rollout_id]


def is_unknown(state: RolloutState) -> bool:
    """Whether the life cycle answered about a rollout that does not exist."""
    return state.status is RolloutStatus.UNKNOWN
