"""What every handler of a worker shares."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from lightstream.runtime.clock import Clock
from lightstream.runtime.kafka import BatchPublisher
from lightstream.runtime.settings import Settings
from lightstream.schemas.codec import Codec
from lightstream.schemas.topics import DEAD_LETTERS, Topic

from .dead_letter import Unusable, dead_letter, dead_letter_key
from .inbox import LogRecord
from .log_reader import LogReader
from .outbox import Outbox

__all__ = ["WorkerContext"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """Settings, clients and clock.

    Attributes:
        group_id: the consumer group whose committed offsets count.
    """

    settings: Settings
    publisher: BatchPublisher
    codec: Codec
    clock: Clock
    group_id: str

    def outbox(self) -> Outbox:
        """For one batch."""
        return Outbox(self.publisher)

    def reader(self, topic: Topic, partition: int) -> LogReader:
        """Reads a partition alongside Faust's consumer."""
        return LogReader(self.settings, self.group_id, topic, partition)

    async def set_aside(
        self, outbox: Outbox, topic: Topic, record: LogRecord, unusable: Unusable, reported_by: str
    ) -> None:
        """Make ``record`` a dead letter."""
        key = dead_letter_key(topic, record)
        logger.warning("dead letter %s (%s): %s", key, unusable.reason.value, unusable)
        letter = dead_letter(
            topic,
            record,
            unusable,
            reported_by=reported_by,
            now_unix_nano=self.clock.now_unix_nano(),
            settings=self.settings,
        )
        await outbox.send(DEAD_LETTERS, key, letter)
