"""Creates the declared topics, and reports those that differ on the cluster.

librdkafka ends the process when an admin client is dropped while an answer is due. So here as elsewhere a request has a
time limit of its own, and its future is waited for without one.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

# Public names that the package's __all__ lacks.
from confluent_kafka.admin import AdminClient  # isort: skip
from confluent_kafka.admin import ConfigResource, NewTopic, OffsetSpec, ResourceType  # type: ignore[attr-defined]  # pyright: ignore[reportPrivateImportUsage]  # isort: skip

from lightstream.schemas.errors import ServiceUnavailableError, TopicMismatchError
from lightstream.schemas.topics import TOPICS, Cleanup, Topic

from ..settings import Settings
from .config import common_config
from .unavailable import kafka_unavailable

__all__ = ["create_topics", "declared_config", "partitions_answer"]

ADMIN_TIMEOUT_S = 30.0
POLL_INTERVAL_S = 0.02
LATEST: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the library leaves it untyped


def declared_config(topic: Topic, settings: Settings) -> dict[str, str]:
    """The topic-level settings we declare (Kafka's own names)."""
    config = {
        "cleanup.policy": topic.cleanup.value,
        "retention.ms": str(topic.retention_ms),
        "max.message.bytes": str(settings.record_bytes_max),
    }
    if topic.by_broker_time:
        config["message.timestamp.type"] = "LogAppendTime"
    if topic.cleanup is Cleanup.COMPACT:
        config["min.cleanable.dirty.ratio"] = "0.1"
    return config


def create_topics(settings: Settings, topics: Iterable[Topic] = TOPICS) -> list[str]:
    """Create the topics that are missing. Safe to call from several processes at once.

    Returns:
        Full names of those that were created.

    Raises:
        TopicMismatchError: a topic exists with other settings; it and all others are unchanged by this.
        ServiceUnavailableError: the cluster does not answer, or refuses. Topics created before that stay.
    """
    admin = AdminClient(common_config(settings))
    try:
        existing = admin.list_topics(timeout=ADMIN_TIMEOUT_S).topics
    except KafkaException as error:
        raise kafka_unavailable(error) from error
    wanted = {topic.full_name(settings.topic_prefix): topic for topic in topics}
    missing = [
        NewTopic(
            name,
            num_partitions=topic.partitions(settings.topic_partitions),
            replication_factor=settings.topic_replication_factor,
            config=declared_config(topic, settings),
        )
        for name, topic in wanted.items()
        if name not in existing
    ]
    created: list[str] = []
    if missing:
        asked = admin.create_topics(missing, operation_timeout=ADMIN_TIMEOUT_S, request_timeout=ADMIN_TIMEOUT_S)
        for name, future in asked.items():
            try:
                future.result()
                created.append(name)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise kafka_unavailable(error, what=f"topic {name!r} was not created") from error
    _wait_until_served(admin, wanted)
    _report_differences(admin, settings, {n: t for n, t in wanted.items() if n not in created})
    return created


def partitions_answer(admin: AdminClient, names: Iterable[str] | None = None, timeout_s: float = 2.0) -> bool:
    """True if every partition of these topics (``None``: of all topics) has a leader that serves it.

    A topic just created, and a broker just restarted, are listed a moment before they serve.
    """
    try:
        topics = admin.list_topics(timeout=timeout_s).topics
        wanted = list(topics) if names is None else list(names)
        if not all(name in topics and topics[name].partitions for name in wanted):
            return False
        end = {TopicPartition(name, partition): LATEST for name in wanted for partition in topics[name].partitions}
        if end:
            for offset in admin.list_offsets(end, request_timeout=timeout_s).values():
                offset.result()
    except KafkaException:
        return False
    return True


def _wait_until_served(admin: AdminClient, names: Collection[str]) -> None:
    deadline = time.monotonic() + ADMIN_TIMEOUT_S
    while not partitions_answer(admin, names):
        if time.monotonic() > deadline:
            raise ServiceUnavailableError(
                f"not all topics answer {ADMIN_TIMEOUT_S:g} s after they were created: {', '.join(sorted(names))}.",
                next_step="Look at the cluster's log.",
            )
        time.sleep(POLL_INTERVAL_S)


def _report_differences(admin: AdminClient, settings: Settings, topics: dict[str, Topic]) -> None:
    if not topics:
        return
    resources = {name: ConfigResource(ResourceType.TOPIC, name) for name in topics}
    try:
        metadata = admin.list_topics(timeout=ADMIN_TIMEOUT_S).topics
        configs = admin.describe_configs(list(resources.values()), request_timeout=ADMIN_TIMEOUT_S)
        entries = {name: configs[resource].result().values() for name, resource in resources.items()}
    except KafkaException as error:
        raise kafka_unavailable(error, what="the settings of our topics cannot be read") from error
    for name, topic in topics.items():
        found = {entry.name: entry.value for entry in entries[name]}
        differences = {
            key: (declared, str(found.get(key)))
            for key, declared in declared_config(topic, settings).items()
            if str(found.get(key)) != declared
        }
        partitions = topic.partitions(settings.topic_partitions)
        if name in metadata and len(metadata[name].partitions) != partitions:
            differences["partitions"] = (str(partitions), str(len(metadata[name].partitions)))
        if differences:
            raise TopicMismatchError(name, differences)
