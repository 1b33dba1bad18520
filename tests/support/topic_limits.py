"""The largest batch that a topic takes, changed while everything runs."""

from __future__ import annotations

import os
from functools import partial

from confluent_kafka import KafkaError, Producer

# Public names that the package's __all__ lacks.
from confluent_kafka.admin import AdminClient  # isort: skip
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType  # type: ignore[attr-defined]  # pyright: ignore[reportPrivateImportUsage]  # isort: skip

from lightstream.runtime.kafka import bootstrap_servers, producer_config
from lightstream.runtime.settings import Settings
from lightstream.schemas.codec import Codec
from lightstream.schemas.records import SpanRecord
from lightstream.schemas.topics import Topic
from tests.support.waiting import eventually

__all__ = ["PROBE", "limit_topic"]

PROBE_BYTES = 100_000


PROBE = "probe"
"""Name of the spans with which it is found out whether a limit counts by now."""


def limit_topic(settings: Settings, topic: Topic, limit_bytes: int) -> None:
    """Set ``max.message.bytes`` of a test's topic, and wait until that counts in every partition.

    The topic may then hold spans of the name :data:`PROBE`.
    """
    entry = ConfigEntry("max.message.bytes", str(limit_bytes), incremental_operation=AlterConfigOpType.SET)
    name = topic.full_name(settings.topic_prefix)
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap_servers(settings)})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(timeout=30)
    if limit_bytes >= PROBE_BYTES:
        return
    producer = Producer(producer_config(settings, linger_ms=0))
    span = SpanRecord(trace_id="f" * 32, span_id="f" * 16, name=PROBE, attributes={"noise": os.urandom(PROBE_BYTES)})
    value = Codec().encode(span)

    def is_refused(partition: int) -> bool:
        errors: list[KafkaError | None] = []
        producer.produce(name, value, span.trace_id, partition, lambda error, _message: errors.append(error))
        producer.flush(30)
        return errors[0] is not None and errors[0].code() == KafkaError.MSG_SIZE_TOO_LARGE

    for partition in range(topic.partitions(settings.topic_partitions)):
        eventually(partial(is_refused, partition), what="the limit counts")
