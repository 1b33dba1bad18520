"""What a topic takes, changed while everything runs."""

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

PROBE_BYTES = 100_000


PROBE = "probe"
"""Name of the spans with which it is found out whether a limit counts by now."""


def limit_topic(settings: Settings, topic: Topic, limit_bytes: int) -> None:
    """Set ``max.message.bytes`` of a test's topic, and wait until that counts in every partition.

    The topic may then hold spans of the name :data:`PROBE`.
    """
    _set(settings, topic, "max.message.bytes", str(limit_bytes))
    if limit_bytes < PROBE_BYTES:
        _wait_until_refused(settings, topic, KafkaError.MSG_SIZE_TOO_LARGE)


def refuse_records(settings: Settings, topic: Topic) -> None:
    """Let a test's topic refuse every record, as being too old, and wait until that counts in every partition."""
    _set(settings, topic, "message.timestamp.before.max.ms", "0")
    _wait_until_refused(settings, topic, KafkaError.INVALID_TIMESTAMP)


def _set(settings: Settings, topic: Topic, option: str, value: str) -> None:
    entry = ConfigEntry(option, value, incremental_operation=AlterConfigOpType.SET)
    name = topic.full_name(settings.topic_prefix)
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap_servers(settings)})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(timeout=300)


def _wait_until_refused(settings: Settings, topic: Topic, code: int) -> None:
    name = topic.full_name(settings.topic_prefix)
    producer = Producer(producer_config(settings, linger_ms=20))
    span = SpanRecord(trace_id="f" * 32, span_id="f" * 16, name=PROBE, attributes={"noise": os.urandom(PROBE_BYTES)})
    value = Codec().encode(span)

    def is_refused(partition: int) -> bool:
        errors: list[KafkaError | None] = []
        producer.produce(name, value, span.trace_id, partition, lambda error, _message: errors.append(error))
        producer.flush(300)
        return bool(errors) and errors[0] is not None and errors[0].code() == code

    for partition in range(topic.partitions(settings.topic_partitions)):
        eventually(partial(is_refused, partition), what="the topic refuses it")
