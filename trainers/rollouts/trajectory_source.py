"""The trainer's view of ``trajectories``: its run's, of every partition, from the ledger's low-water mark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Message

from lightstream.runtime.clock import NANOS_PER_MILLISECOND
from lightstream.runtime.kafka import TopicTail, decoded, of_another_run
from lightstream.runtime.large_records import whole_trajectory
from lightstream.runtime.schema_registry import codec_for
from lightstream.runtime.settings import Settings
from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import DecodeError, NewerWriterError, TrainingError
from lightstream.schemas.records import Trajectory
from lightstream.schemas.topics import TRAJECTORIES

from .groups.source import LoggedTrajectory


class TrajectorySource:
    """Reads the trajectories of one run. Assigns partitions by hand: one trainer reads them all. Not thread-safe.

    Attributes:
        of_other_runs: how many trajectories were passed over, most by their header, without decoding them.
    """

    def __init__(self, settings: Settings, group_id: str, *, run_id: str, codec: Codec | None = None) -> None:
        self._settings = settings
        self._run_id = run_id
        self._codec = codec or codec_for(settings)
        self._tail = TopicTail(settings, [TRAJECTORIES], group_id=group_id)
        self.of_other_runs = 0

    @property
    def undecodable(self) -> int:
        """Number of records that could not be decoded (the view reports each as a dead letter)."""
        return self._tail.undecodable

    def start(self, low_water: Mapping[int, int]) -> None:
        """Read from these offsets on; partitions that are not named, from their beginning.

        Raises:
            ServiceUnavailableError: Kafka does not answer, or the topic is missing or not for this user.
        """
        partitions = self._tail.partitions()[TRAJECTORIES]
        self._tail.follow(TRAJECTORIES, {p: low_water.get(p, OFFSET_BEGINNING) for p in partitions})

    def poll(self, timeout_s: float) -> list[LoggedTrajectory]:
        """Takes records that have arrived; waits up to ``timeout_s`` seconds for a first one.

        Raises:
            ServiceUnavailableError: the topic can no longer be read: it was deleted, or is not for this user.
            TrainingError: a trajectory of the run can only be read by another version of Lightstream, which it names.
                Nothing of it counts as read: a training that is started again by that version goes on with it.
        """
        messages = self._tail.poll(timeout_s).records
        return [logged for message in messages if (logged := self._read(message)) is not None]

    def whole(self, trajectory: Trajectory) -> Trajectory:
        """The trajectory, loaded from its file where it was too large for its record.

        Raises:
            ArtefactError: the file is missing, or not what was written.
        """
        return whole_trajectory(trajectory, self._codec, self._settings)

    def end_offsets(self) -> dict[int, int]:
        """Partition -> where the log ends now: see :meth:`has_read`.

        Raises:
            ServiceUnavailableError: Kafka does not answer.
        """
        return self._tail.end_offsets(TRAJECTORIES, self._tail.next_offsets(TRAJECTORIES))

    def has_read(self, ends: Mapping[int, int]) -> bool:
        """Whether everything below these offsets was returned by :meth:`poll`, or passed over."""
        reached = self.next_offsets
        return all(reached[partition] >= end for partition, end in ends.items())

    @property
    def next_offsets(self) -> dict[int, int]:
        """Partition -> the next offset to read."""
        return self._tail.next_offsets(TRAJECTORIES)

    @property
    def consumer_group(self) -> Any:
        """Metadata with which a transaction commits offsets for this group."""
        return self._tail.consumer_group

    def close(self) -> None:
        """Leave the cluster."""
        self._tail.close()

    def _read(self, message: Message) -> LoggedTrajectory | None:
        if of_another_run(message, self._run_id):
            self.of_other_runs += 1
            return None
        try:
            record = decoded(self._codec, message)
        except NewerWriterError as error:
            raise TrainingError(
                f"a trajectory of run {self._run_id!r}: {error.message}",
                next_step=f"Install version {error.writer} or a later one, and start the training again: "
                "it goes on where it was.",
            ) from error
        except DecodeError as error:
            self._tail.pass_over(message, error)
            return None
        if not isinstance(record, Trajectory):
            return None
        if record.run_id != self._run_id:
            self.of_other_runs += 1
            return None
        logged = message.timestamp()[1] * NANOS_PER_MILLISECOND
        return LoggedTrajectory(record, message.partition() or 0, message.offset() or 0, logged)
