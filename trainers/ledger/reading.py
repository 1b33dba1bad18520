"""Read a single-partition topic to its end, committed records only."""

from __future__ import annotations

import logging

from lightstream.runtime.kafka import PartitionReader, decoded
from lightstream.runtime.settings import Settings
from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import DecodeError, NewerWriterError, TrainingError
from lightstream.schemas.records import Record
from lightstream.schemas.topics import Topic

logger = logging.getLogger(__name__)


def read_topic(
    settings: Settings, topic: Topic, codec: Codec, *, group_id: str, start: int = 0, own_key: bytes = b""
) -> list[tuple[int, Record]]:
    """Return every committed record from ``start`` on with its offset. Ends where a transaction is open: abort a former
    self's first.

    Records that do not decode are left out with a warning (the view reports them as dead letters).

    Args:
        own_key: of records that must not be left out.

    Raises:
        TrainingError: another version of Lightstream wrote a record with that key, and only it can read it.
        ServiceUnavailableError: Kafka does not answer, or the topic does not exist.
    """
    records: list[tuple[int, Record]] = []
    for message in PartitionReader(settings, topic, 0, group_id=group_id, read_committed=True).records(start):
        if message.value() is None:
            continue  # of a compacted topic: the key was deleted
        try:
            records.append((message.offset() or 0, decoded(codec, message)))
        except DecodeError as reason:
            name = topic.full_name(settings.topic_prefix)
            if isinstance(reason, NewerWriterError) and own_key and message.key() == own_key:
                raise TrainingError(
                    f"step at offset {message.offset()} of {name!r}: {reason.message}",
                    next_step=f"Install version {reason.writer} or a later one, and start the training again.",
                ) from reason
            logger.warning("offset %s of %s is not a record: %s", message.offset(), name, reason)
    return records
