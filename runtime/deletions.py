"""Deleted runs: which records of the log count no longer. For the view, and for learners from traffic.

A deletion names the end of every partition when it was made. A record of the run below that counts no longer; one after
it is of a new run of the same name.
"""

from __future__ import annotations

from contextlib import suppress

from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import DecodeError
from lightstream.schemas.records import Record, ResourcesRecord, RunDeleted, TrainingStep, Trajectory
from lightstream.schemas.topics import DELETIONS, SPANS, Topic

from .kafka import PartitionReader, decoded
from .settings import Settings


class Deletions:
    """The deletions that are known. Not thread-safe."""

    def __init__(self) -> None:
        self._positions: dict[str, dict[tuple[str, int], int]] = {}
        self._next = 0

    def note(self, record: RunDeleted) -> None:
        """Take up a deletion; a later one of a run is for all that an earlier one was for."""
        self._positions[record.run_id] = {(at.topic, at.partition): at.offset for at in record.positions}

    def read(self, settings: Settings, codec: Codec, *, group_id: str) -> bool:
        """Take up the deletions in the log that were not read before. Blocks.

        Records that do not decode are passed over: the view reports them as dead letters.

        Args:
            group_id: which group the client says it is of.

        Returns:
            Whether there were any.

        Raises:
            ServiceUnavailableError: Kafka does not answer, or the topic does not exist.
        """
        found = False
        for message in PartitionReader(settings, DELETIONS, 0, group_id=group_id).records(self._next):
            self._next = (message.offset() or 0) + 1
            with suppress(DecodeError):
                record = decoded(codec, message) if message.value() is not None else None
                if isinstance(record, RunDeleted):
                    self.note(record)
                    found = True
        return found

    def covers(self, record: Record, topic: Topic, partition: int, offset: int) -> bool:
        """Whether a record counts no longer, since its run was deleted.

        Records of other types do not name their run, or are needed to find the rollouts of the run.
        """
        if not isinstance(record, Trajectory | TrainingStep | ResourcesRecord):
            return False
        positions = self._positions.get(record.run_id)
        if positions is None:
            return False
        if offset < positions.get((topic.name, partition), 0):
            return True
        # It was assembled after the deletion, of spans that came before; -1 where its spans are not known.
        source = record.source if isinstance(record, Trajectory) else None
        return source is not None and source.last_offset < positions.get((SPANS.name, source.partition), -1)
