"""The log as a replay reads it: a topic up to its present end, without a consumer group, and the attempts selected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from confluent_kafka import Message

from lightstream.runtime.kafka import OffsetRange, PartitionReader, decoded, logged_unix_nano, partitions_of
from lightstream.runtime.schema_registry import codec_for
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import DecodeError, NewerWriterError
from lightstream.schemas.records import AttemptOpened, Record, Trajectory
from lightstream.schemas.topics import Topic

GROUP_ID = "lightstream-replay"
"""Asked for by the client; never joined, never committed to."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A record, its place, the time at which it was logged, and the space it takes there."""

    record: Record
    offset: int
    logged_unix_nano: int
    size_bytes: int


class TopicReader:
    """Reads the records of a topic, partition by partition, as far as it went when this was made.

    Attributes:
        undecodable: how many records :meth:`records` could not decode (the view shows each as a dead letter).

    Raises:
        ServiceUnavailableError: the cluster does not answer, or has no such topic.
    """

    def __init__(self, settings: Settings, topic: Topic) -> None:
        self._codec = codec_for(settings)
        self.undecodable = 0
        self._readers = {
            partition: PartitionReader(settings, topic, partition, group_id=GROUP_ID, read_committed=True)
            for partition in partitions_of(settings, topic)
        }
        self._ends = {partition: reader.watermarks()[1] for partition, reader in self._readers.items()}

    @property
    def partitions(self) -> list[int]:
        """The topic's partitions."""
        return list(self._readers)

    def records(self, partition: int, from_unix_nano: int = 0) -> Iterator[LogEntry]:
        """In offset order, the records stamped at ``from_unix_nano`` and all after the first of these.

        Raises:
            ServiceUnavailableError: the cluster does not answer.
        """
        reader = self._readers[partition]
        start = reader.first_logged_at(from_unix_nano)
        for message in reader.ranges([(start, self._ends[partition] - 1)]):
            entry = self._entry(message)
            if entry is None:
                self.undecodable += 1
            else:
                yield entry

    def again(self, partition: int, ranges: Sequence[OffsetRange]) -> Iterator[LogEntry]:
        """The records in ascending ranges of offsets once more, as far as they are still there.

        Raises:
            ServiceUnavailableError: the cluster does not answer.
        """
        for message in self._readers[partition].ranges(ranges):
            entry = self._entry(message)
            if entry is not None:
                yield entry

    def _entry(self, message: Message) -> LogEntry | None:
        """``None`` for bytes that are not a record.

        Raises:
            NewerWriterError: only another version of Lightstream can read it: nothing is left out of a replay for that.
        """
        value = message.value()
        try:
            record = decoded(self._codec, message)
        except NewerWriterError:
            raise
        except DecodeError:
            return None
        return LogEntry(record, message.offset() or 0, logged_unix_nano(message), len(value or b""))


AttemptKey: TypeAlias = tuple[str, str]
"""(rollout id, attempt id)."""


@dataclass(frozen=True, slots=True)
class Selection:
    """All of these must hold.

    Attributes:
        from_unix_nano, to_unix_nano: the attempt's opening was logged since the one and before the other; ``None``: it
            may be any later.
        run_id: the run; ``None``: any.
        attempts: the attempts; ``None``: any.
    """

    from_unix_nano: int = 0
    to_unix_nano: int | None = None
    run_id: str | None = None
    attempts: frozenset[AttemptKey] | None = None

    def opens(self, entry: LogEntry) -> bool:
        """False for the opening of an attempt that comes too late: without it, the attempt is not assembled."""
        if self.to_unix_nano is None or not isinstance(entry.record, AttemptOpened):
            return True
        return entry.logged_unix_nano < self.to_unix_nano

    def has(self, trajectory: Trajectory) -> bool:
        """Whether run and attempt are among the requested ones."""
        if self.run_id is not None and trajectory.run_id != self.run_id:
            return False
        return self.attempts is None or (trajectory.rollout_id, trajectory.attempt_id) in self.attempts
