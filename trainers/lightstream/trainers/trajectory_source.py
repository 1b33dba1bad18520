"""The trainer's view of ``trajectories``: its run's, of every partition, from the ledger's low-water mark."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from lightstream.runtime.kafka import ANSWER_TIMEOUT_S, answered, consumer_config, kafka_unavailable, of_another_run
from lightstream.runtime.large_records import whole_trajectory
from lightstream.runtime.schema_registry import codec_for
from lightstream.runtime.settings import Settings
from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import DecodeError, ServiceUnavailableError
from lightstream.schemas.records import Trajectory
from lightstream.schemas.topics import TRAJECTORIES

from .groups.source import LoggedTrajectory

__all__ = ["TrajectorySource"]

logger = logging.getLogger(__name__)

METADATA_TIMEOUT_S = 10.0
RECORDS_PER_POLL_MAX = 1000


class TrajectorySource:
    """Reads the trajectories of one run. Assigns partitions by hand: one trainer reads them all. Not thread-safe.

    Attributes:
        of_other_runs: how many trajectories were passed over, most by their header, without decoding them.
        undecodable: how many records were not trajectories (the view reports each as a dead letter).
    """

    def __init__(self, settings: Settings, group_id: str, *, run_id: str, codec: Codec | None = None) -> None:
        self._run_id = run_id
        self._topic = TRAJECTORIES.full_name(settings.topic_prefix)
        self._codec = codec or codec_for(settings)
        config = consumer_config(settings, group_id=group_id, read_committed=True)
        self._consumer = Consumer(config | {"enable.partition.eof": True})
        self._next: dict[int, int] = {}
        self.undecodable = 0
        self.of_other_runs = 0

    def start(self, low_water: Mapping[int, int]) -> None:
        """Read from these offsets on; partitions that are not named, from their beginning.

        Raises:
            ServiceUnavailableError: Kafka does not answer, or the topic does not exist.
        """
        try:
            topics = self._consumer.list_topics(self._topic, timeout=METADATA_TIMEOUT_S).topics
        except KafkaException as error:
            raise kafka_unavailable(error) from error
        partitions = list(topics[self._topic].partitions) if self._topic in topics else []
        if not partitions:
            raise ServiceUnavailableError(
                f"the cluster has no topic {self._topic!r}.", next_step="Create it with `lightstream topics create`."
            )
        self._next = {partition: low_water.get(partition, 0) for partition in partitions}
        self._consumer.assign(
            [TopicPartition(self._topic, p, low_water.get(p, OFFSET_BEGINNING)) for p in sorted(partitions)]
        )

    def poll(self, timeout_s: float) -> list[LoggedTrajectory]:
        """Takes what has arrived; waits up to ``timeout_s`` seconds for a first record."""
        first = self._consumer.poll(timeout_s)
        if first is None:
            return []
        messages = [first, *self._consumer.consume(RECORDS_PER_POLL_MAX, 0)]
        return [logged for message in messages if (logged := self._read(message)) is not None]

    def whole(self, trajectory: Trajectory) -> Trajectory:
        """The trajectory, loaded from its file where it was too large for its record.

        Raises:
            ArtefactError: the file is missing, or not what was written.
        """
        return whole_trajectory(trajectory, self._codec)

    def end_offsets(self) -> dict[int, int]:
        """Partition -> where the log ends now: see :meth:`has_read`.

        Raises:
            ServiceUnavailableError: Kafka does not answer.
        """

        def ask(partition: int) -> int:
            place = TopicPartition(self._topic, partition)
            return self._consumer.get_watermark_offsets(place, timeout=ANSWER_TIMEOUT_S)[1]

        what = f"the end of {self._topic!r} is not known"
        return {partition: answered(partial(ask, partition), what=what) for partition in self._next}

    def has_read(self, ends: Mapping[int, int]) -> bool:
        """Whether everything below these offsets was returned by :meth:`poll`, or passed over."""
        return all(self._next[partition] >= end for partition, end in ends.items())

    @property
    def next_offsets(self) -> dict[int, int]:
        """Partition -> the next offset to read."""
        return dict(self._next)

    @property
    def consumer_group(self) -> Any:
        """Metadata with which a transaction commits offsets for this group."""
        return self._consumer.consumer_group_metadata()

    def close(self) -> None:
        """Leave the cluster."""
        self._consumer.close()

    def _read(self, message: Message) -> LoggedTrajectory | None:
        error = message.error()
        partition, offset = message.partition() or 0, message.offset() or 0
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:  # the last records of the log may be no data
                self._next[partition] = max(self._next[partition], offset)
                return None
            if error.fatal():
                raise kafka_unavailable(KafkaException(error), what="trajectories can no longer be read")
            logger.warning("reading %s: %s", self._topic, error)
            return None
        self._next[partition] = offset + 1
        if of_another_run(message, self._run_id):
            self.of_other_runs += 1
            return None
        try:
            record = self._codec.decode(message.value())
        except DecodeError as reason:
            self.undecodable += 1
            logger.warning("%s[%d] offset %d is not a trajectory: %s", self._topic, partition, offset, reason)
            return None
        if not isinstance(record, Trajectory):
            return None
        if record.run_id != self._run_id:
            self.of_other_runs += 1
            return None
        return LoggedTrajectory(record, partition, offset)
