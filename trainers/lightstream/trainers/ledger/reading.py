"""Read a single-partition topic from its beginning to its end, committed records only."""

from __future__ import annotations

import logging
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import DecodeError, ServiceUnavailableError
from lightstream.schemas.kafka import consumer_config, kafka_unavailable
from lightstream.schemas.records import Record
from lightstream.schemas.settings import Settings
from lightstream.schemas.topics import Topic

__all__ = ["read_whole_topic"]

_LOG = logging.getLogger(__name__)

POLL_TIMEOUT_S = 0.5
RECORDS_PER_POLL_MAX = 1000


def read_whole_topic(
    settings: Settings, topic: Topic, codec: Codec, *, group_id: str, timeout_s: float
) -> list[Record]:
    """Every committed record, in log order. Ends where no transaction is open: abort a former self's first.

    Records that do not decode are left out with a warning (the view reports them as dead letters).

    Raises:
        ServiceUnavailableError: Kafka did not deliver all within ``timeout_s`` seconds, or the topic does not exist.
    """
    name = topic.full_name(settings.topic_prefix)
    config = consumer_config(settings, group_id=group_id, read_committed=True) | {"enable.partition.eof": True}
    consumer = Consumer(config)
    records: list[Record] = []
    deadline = time.monotonic() + timeout_s
    trouble: object = "no answer"
    try:
        consumer.assign([TopicPartition(name, 0, OFFSET_BEGINNING)])
        while time.monotonic() < deadline:
            first = consumer.poll(POLL_TIMEOUT_S)
            if first is None:
                continue
            for message in (first, *consumer.consume(RECORDS_PER_POLL_MAX, 0)):
                error = message.error()
                if error is None:
                    try:
                        records.append(codec.decode(message.value()))
                    except DecodeError as reason:
                        _LOG.warning("offset %s of %s is not a record: %s", message.offset(), name, reason)
                elif error.code() == KafkaError._PARTITION_EOF:  # the client's own name for it
                    return records
                elif error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise ServiceUnavailableError(
                        f"the cluster has no topic {name!r}.",
                        next_step="Create the topics with `lightstream topics create`.",
                    )
                else:
                    trouble = KafkaException(error)
    finally:
        consumer.close()
    raise kafka_unavailable(trouble, what=f"topic {name!r} could not be read within {timeout_s:g} s")
