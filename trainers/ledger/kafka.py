"""One Kafka transaction a step: the training step, the resources it made and the offsets it is done with.

Crash-safety in three sentences. The checkpoint is on disk before the transaction begins, under a name used once. The
transaction makes the step, the resources and the offsets visible together or not at all. Whoever starts with the same
``trainer_id`` first fences its former self (one ``transactional.id``), which ends any transaction left open, and only
then reads how far that self got.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from lightstream.runtime.clock import NANOS_PER_SECOND
from lightstream.runtime.kafka import RECORD_OVERHEAD_BYTES_MAX, kafka_unavailable, producer_config, with_writer
from lightstream.runtime.schema_registry import codec_for
from lightstream.runtime.settings import Settings
from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import RecordTooLargeError, TrainingError
from lightstream.schemas.records import Record, ResourcesRecord, RunDeleted
from lightstream.schemas.topics import DELETIONS, RESOURCES, TRAINING_STEPS, TRAJECTORIES, Topic

from ..run.history import History, StepCommit, replay
from .reading import read_topic
from .released import released_checkpoints
from .snapshot import SnapshotFile

logger = logging.getLogger(__name__)

TRANSACTION_TIMEOUT_S = 30.0
"""Longest time for which readers wait for a trainer that died in a transaction and does not come back."""

OPEN_TIMEOUT_S = 120.0
"""The first transaction of a broker's life may wait for its coordinator to load."""

ATTEMPT_TIMEOUT_S = 10.0
OFFSETS_TIMEOUT_S = 5.0
OFFSETS_STUCK_AFTER_S = 8.0
"""librdkafka may never return from sending offsets after a broker's restart, whatever the timeout (its issue 5456)."""

SNAPSHOT_EVERY = 20
"""Commits between two snapshots of the history: a restart reads so many steps at most, of each trainer."""

REOPENINGS_MAX = 5
RETRY_PAUSE_S = 0.1

START_AGAIN = "Start the trainer again once Kafka is healthy: it continues after the last step."


class KafkaLedger:
    """The only writer of a trainer's steps. Not thread-safe.

    Args:
        settings: the cluster and its topics.
        trainer_id: names the trainer across restarts: its ``transactional.id`` and consumer group.
        run_id: the run whose resources and rollouts it makes.
    """

    def __init__(self, settings: Settings, *, trainer_id: str, run_id: str, codec: Codec | None = None) -> None:
        self._settings = settings
        self._trainer_id = trainer_id
        self._run_id = run_id
        self._codec = codec or codec_for(settings)
        self._refused: list[RecordTooLargeError] = []
        self._producer: Producer | None = None
        self._history: History | None = None
        self._snapshots = SnapshotFile(settings.data_dir.absolute() / "ledger" / f"{self.group_id}.json")
        self._offsets: dict[Topic, int] = {}
        self._since_snapshot = 0

    @property
    def group_id(self) -> str:
        """Consumer group and ``transactional.id``; with the topic prefix, so that experiments keep apart."""
        return f"{self._settings.topic_prefix}{self._trainer_id}"

    def open(self) -> History:
        """Fence a former self, and read how far it got. What is committed later is added to what this returns.

        Reads on from the last snapshot where there is one.

        Raises:
            ServiceUnavailableError: Kafka does not answer.
            TrainingError: the ledger contradicts itself, belongs to another or a deleted run, or may not be written by
                this user.
        """
        self._check_not_deleted()
        self._begin()
        self._history = self._read()
        return self._history

    def _check_not_deleted(self) -> None:
        """Refuse the name of a deleted run: its rollouts' ids follow from it, and the life cycle knows these."""
        for _, record in read_topic(self._settings, DELETIONS, self._codec, group_id=f"{self.group_id}-ledger"):
            if isinstance(record, RunDeleted) and record.run_id == self._run_id:
                deleted = datetime.fromtimestamp(record.deleted_unix_nano / NANOS_PER_SECOND, UTC)
                raise TrainingError(
                    f"run {self._run_id!r} was deleted at {deleted:%Y-%m-%d %H:%M} UTC by `lightstream runs delete`.",
                    next_step="Give the new run another run_id and trainer_id.",
                )

    def _begin(self) -> None:
        """Make a producer, which ends every transaction of a former one."""
        config = producer_config(self._settings, linger_ms=0) | {
            "transactional.id": self.group_id,
            "transaction.timeout.ms": int(TRANSACTION_TIMEOUT_S * 1000),
            "delivery.timeout.ms": int(TRANSACTION_TIMEOUT_S * 1000),
            "batch.num.messages": 1,  # a topic's limit is that of a batch
        }
        producer = Producer(config)
        begin = partial(producer.init_transactions, ATTEMPT_TIMEOUT_S)
        try:
            self._until_done(begin, OPEN_TIMEOUT_S, "began no transactions")
        except KafkaException as error:
            raise TrainingError(
                f"Kafka does not let trainer {self._trainer_id!r} begin transactions: {_reason(error)}.",
                next_step=f"May this user write with the transactional id {self.group_id!r}?",
            ) from error
        self._producer = producer

    def _read(self) -> History:
        snapshot = self._snapshots.read()
        if snapshot is not None:
            steps, resources = (
                self._records(TRAINING_STEPS, snapshot.step_offset),
                self._records(RESOURCES, snapshot.resources_offset),
            )
            if snapshot.is_continued_by(steps, resources):
                return self._replay(steps[1:], resources[1:], since=snapshot.history)
        return self._replay(self._records(TRAINING_STEPS), self._records(RESOURCES))

    def _records(self, topic: Topic, start: int = 0) -> list[tuple[int, Record]]:
        group_id = f"{self.group_id}-ledger"
        return read_topic(
            self._settings, topic, self._codec, group_id=group_id, start=start, own_key=self._trainer_id.encode()
        )

    def _replay(
        self, steps: Sequence[tuple[int, Record]], resources: Sequence[tuple[int, Record]], since: History | None = None
    ) -> History:
        return replay(
            [record for _, record in steps],
            [record for _, record in resources],
            trainer_id=self._trainer_id,
            run_id=self._run_id,
            since=since,
        )

    def publish_resources(self, record: ResourcesRecord) -> None:
        """Make resources visible that belong to no step (version 0).

        Raises:
            TrainingError: another process took over, or Kafka stayed away; nothing is visible.
        """

        def write(producer: Producer) -> None:
            self._produce(producer, RESOURCES, record.resources_id, record)

        self._transaction(write)
        if self._history is not None:
            self._history.add_resources(record)

    def commit(self, commit: StepCommit) -> None:
        """Make a step, its resources and its offsets visible together.

        Raises:
            TrainingError: another process took over, or Kafka stayed away. Whether the step is in the log, its next
                :meth:`open` shows it; log and checkpoint agree either way.
        """
        trajectories = TRAJECTORIES.full_name(self._settings.topic_prefix)
        offsets = [
            TopicPartition(trajectories, position.partition, position.offset)
            for position in commit.step.low_water
            if position.topic == TRAJECTORIES.name
        ]

        def write(producer: Producer) -> None:
            self._produce(producer, TRAINING_STEPS, commit.step.trainer_id, commit.step)
            if commit.resources is not None:
                self._produce(producer, RESOURCES, commit.resources.resources_id, commit.resources)
            if offsets:
                _send_offsets(producer, offsets, commit.consumer_group)

        for _ in range(REOPENINGS_MAX):
            self._offsets.pop(TRAINING_STEPS, None)
            try:
                self._transaction(write)
            except _StuckClientError:
                logger.warning("the Kafka client is stuck; a new one takes over")
                self._begin()
                if self._read().ended_unix_nano != commit.step.ended_unix_nano:
                    continue
            self._committed(commit)
            return
        raise TrainingError(
            f"Kafka's client got stuck {REOPENINGS_MAX} times while committing step {commit.step.step}.",
            next_step=f"Is the group coordinator up? {START_AGAIN}",
        )

    def released(self) -> Collection[str]:
        return released_checkpoints(self._settings, self._codec, self._run_id, group_id=f"{self.group_id}-released")

    def _committed(self, commit: StepCommit) -> None:
        if self._history is None:
            return
        self._history.add_commit(commit)
        self._since_snapshot += 1
        if self._since_snapshot >= SNAPSHOT_EVERY and self._offsets.keys() >= {TRAINING_STEPS, RESOURCES}:
            self._snapshots.write(self._history, self._offsets[TRAINING_STEPS], self._offsets[RESOURCES])
            self._since_snapshot = 0

    def close(self) -> None:
        """Give the producer back. Everything committed is durable already."""
        self._producer = None

    def _produce(self, producer: Producer, topic: Topic, key: str, record: Record) -> None:
        value = self._codec.encode(record)
        limit_bytes = self._settings.record_bytes_max - RECORD_OVERHEAD_BYTES_MAX
        if len(value) > limit_bytes:
            raise RecordTooLargeError(topic.name, len(value), limit_bytes)
        offsets = self._offsets  # and not this ledger: what is never reported would keep its producer alive

        refused = self._refused
        size_bytes = len(value)

        def reported(error: KafkaError | None, message: Message) -> None:
            if error is None:
                offsets[topic] = message.offset() or 0
            elif error.code() == KafkaError.MSG_SIZE_TOO_LARGE:  # the topic's own limit is lower
                refused.append(RecordTooLargeError(topic.name, size_bytes, None))

        name = topic.full_name(self._settings.topic_prefix)
        producer.produce(name, value, key=key, on_delivery=reported, headers=with_writer())

    def _transaction(self, write: Callable[[Producer], None]) -> None:
        """Run ``write`` and commit; repeat while Kafka says that it may yet work."""
        producer = self._producer
        if producer is None:
            raise TrainingError("the ledger is not open.", next_step="Open it first.")
        deadline = time.monotonic() + self._settings.publish_timeout_s + TRANSACTION_TIMEOUT_S
        while True:
            try:
                producer.begin_transaction()
                write(producer)
                self._until_done(lambda: producer.commit_transaction(ATTEMPT_TIMEOUT_S), None, "committed nothing")
                return
            except RecordTooLargeError:
                self._abort(producer)
                raise
            except KafkaException as error:
                reason = _reason(error)
                if _is_fenced(reason):
                    raise _fenced(self._trainer_id, reason) from error
                if self._refused:  # it would be the next time
                    too_large = self._refused[0]
                    self._refused.clear()
                    self._abort(producer)
                    raise too_large from error
                if reason.fatal() or time.monotonic() > deadline:
                    raise TrainingError(f"Kafka did not commit the step: {reason}.", next_step=START_AGAIN) from error
                logger.warning("a transaction of %s is repeated: %s", self._trainer_id, reason)
                self._abort(producer)
                time.sleep(RETRY_PAUSE_S)

    def _abort(self, producer: Producer) -> None:
        producer.flush(ATTEMPT_TIMEOUT_S)  # aborting with records under way can lose track of their sequence
        try:
            self._until_done(lambda: producer.abort_transaction(ATTEMPT_TIMEOUT_S), None, "aborted nothing")
        except KafkaException as error:
            reason = _reason(error)
            if _is_fenced(reason):
                raise _fenced(self._trainer_id, reason) from error
            raise TrainingError(f"a transaction could not be aborted: {reason}.", next_step=START_AGAIN) from error

    def _until_done(self, call: Callable[[], None], timeout_s: float | None, failure: str) -> None:
        """Repeat a call that Kafka says may be repeated, for at most ``timeout_s`` (default: the setting)."""
        limit_s = self._settings.publish_timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + limit_s
        while True:
            try:
                call()
                return
            except KafkaException as error:
                if not _reason(error).retriable():
                    raise
                if time.monotonic() > deadline:
                    raise kafka_unavailable(error, what=f"Kafka {failure} within {limit_s:g} s") from error
                time.sleep(RETRY_PAUSE_S)


class _StuckClientError(Exception):
    """A call of the client did not return; the producer is useless now, and a new one fences it."""


def _send_offsets(producer: Producer, offsets: list[TopicPartition], consumer_group: object) -> None:
    """As the client's call, but returning in time, one way or the other."""
    outcome: Future[None] = Future()

    def call() -> None:
        try:
            producer.send_offsets_to_transaction(offsets, consumer_group, OFFSETS_TIMEOUT_S)
        except BaseException as error:  # noqa: BLE001  # raised where it is waited for
            outcome.set_exception(error)
        else:
            outcome.set_result(None)

    # A thread of its own, since one that hangs is left behind.
    threading.Thread(target=call, name="lightstream-send-offsets", daemon=True).start()
    try:
        outcome.result(OFFSETS_STUCK_AFTER_S)
    except TimeoutError as error:
        raise _StuckClientError from error


def _reason(error: KafkaException) -> KafkaError:
    reason: KafkaError = error.args[0]
    return reason


def _is_fenced(reason: KafkaError) -> bool:
    return reason.code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


def _fenced(trainer_id: str, reason: KafkaError) -> TrainingError:
    return TrainingError(
        f"another process works as trainer {trainer_id!r} now ({reason}); this one has written nothing since.",
        next_step="Run one process per trainer_id.",
    )
