"""The trainer's view of ``trajectories``: every partition, from the ledger's low-water mark."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition

from lightstream.schemas.codec import Codec, codec_for
from lightstream.schemas.errors import DecodeError, ServiceUnavailableError
from lightstream.schemas.kafka import consumer_config, kafka_unavailable
from lightstream.schemas.large_records import whole_trajectory
from lightstream.schemas.records import Trajectory
from lightstream.schemas.settings import Settings
from lightstream.schemas.topics import TRAJECTORIES

__all__ = ["LoggedTrajectory", "TrajectorySource"]

logger = logging.getLogger(__name__)

METADATA_TIMEOUT_S = 10.0
RECORDS_PER_POLL_MAX = 1000


@dataclass(frozen=True, slots=True)
class LoggedTrajectory:
    """A trajectory and where it is."""

    trajectory: Trajectory
    partition: int
    offset: int


class TrajectorySource:
    """Reads trajectories. Assigns partitions by hand: one trainer reads them all. Not thread-safe.

    Attributes:
        undecodable: how many records were not trajectories (the view reports each as a dead letter).
    """

    def __init__(self, settings: Settings, group_id: str, codec: Codec | None = None) -> None:
        self._topic = TRAJECTORIES.full_name(settings.topic_prefix)
        self._codec = codec or codec_for(settings)
        self._consumer = Consumer(consumer_config(settings, group_id=group_id, read_committed=True))
        self._next: dict[int, int] = {}
        self.undecodable = 0

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
        """What has come; waits up to ``timeout_s`` seconds for a first one."""
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

    @property
    def next_offsets(self) -> dict[int, int]:
        """Partition -> the next offset to read."""
        return dict(self._next)

    @property
    def consumer_group(self) -> Any:
        """What a transaction needs to commit offsets for this group."""
        return self._consumer.consumer_group_metadata()

    def close(self) -> None:
        """Leave the cluster."""
        self._consumer.close()

    def _read(self, message: Message) -> LoggedTrajectory | None:
        error = message.error()
        if error is not None:
            if error.fatal():
                raise kafka_unavailable(KafkaException(error), what="trajectories can no longer be read")
            logger.warning("reading %s: %s", self._topic, error)
            return None
        partition, offset = message.partition() or 0, message.offset() or 0
        self._next[partition] = offset + 1
        try:
            record = self._codec.decode(message.value())
        except DecodeError as reason:
            self.undecodable += 1
            logger.warning("%s[%d] offset %d is not a trajectory: %s", self._topic, partition, offset, reason)
            return None
        return LoggedTrajectory(record, partition, offset) if isinstance(record, Trajectory) else None
