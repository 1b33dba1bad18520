"""Creates the declared topics, and reports topics that differ on the cluster.

librdkafka ends the process when an admin client is dropped while an answer is due. So here as elsewhere a request has a
time limit of its own, and its future is waited for without one.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

# Public names that the package's __all__ lacks.
from confluent_kafka.admin import AdminClient  # isort: skip
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, OffsetSpec, ResourceType  # type: ignore[attr-defined]  # pyright: ignore[reportPrivateImportUsage]  # isort: skip

from lightstream.schemas.errors import LightstreamError, ServiceUnavailableError, SettingsError, TopicMismatchError
from lightstream.schemas.topics import TOPICS, Cleanup, Topic

from ..settings import Settings
from .connect import connected
from .unavailable import kafka_unavailable

ADMIN_TIMEOUT_S = 30.0
POLL_INTERVAL_S = 0.02
LATEST: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the library leaves it untyped


def declared_config(topic: Topic, settings: Settings) -> dict[str, str]:
    """The topic-level settings we declare (Kafka's own names); ``topic_config`` adds, changes and leaves out some."""
    config = {
        "cleanup.policy": topic.cleanup.value,
        "retention.ms": str(topic.retention_ms),
        "max.message.bytes": str(settings.record_bytes_max),
    }
    if topic.by_broker_time:
        config["message.timestamp.type"] = "LogAppendTime"
    if topic.cleanup is Cleanup.COMPACT:
        config["min.cleanable.dirty.ratio"] = "0.1"
    for item in filter(None, map(str.strip, settings.topic_config.split(","))):
        name, _, value = item.partition("=")
        of, _, name = name.rpartition(":")
        if of.strip() in ("", topic.name):
            config[name.strip()] = value.strip()
    return {name: value for name, value in config.items() if value}


def replication_factor(settings: Settings) -> int:
    """Copies that our topics are created with."""
    return settings.topic_replication_factor or settings.brokers


def create_topics(settings: Settings, topics: Iterable[Topic] = TOPICS) -> list[str]:
    """Create the topics that are missing. Safe to call from several processes at once.

    Returns:
        Full names of those that were created.

    Raises:
        TopicMismatchError: a topic exists with other settings; it and all others are unchanged by this.
        AccessRefusedError: the cluster does not let this client in.
        SettingsError: the cluster refuses a setting of a topic; names ours. Topics created before that stay.
        ServiceUnavailableError: the cluster does not answer, or refuses. Topics created before that stay.
    """
    admin, cluster = connected(settings)
    expected = {topic.full_name(settings.topic_prefix): topic for topic in topics}
    created = _create(admin, settings, {name: expected[name] for name in expected if name not in cluster.topics})
    deadline = time.monotonic() + ADMIN_TIMEOUT_S
    while not partitions_answer(admin, expected):
        if time.monotonic() > deadline:
            raise ServiceUnavailableError(
                f"not all topics answer {ADMIN_TIMEOUT_S:g} s after they were created: {', '.join(sorted(expected))}.",
                next_step="Look at the cluster's log.",
            )
        time.sleep(POLL_INTERVAL_S)
        # A broker lists a topic for a moment after its deletion.
        created += _create(admin, settings, _unlisted(admin, expected))
    for different in differing_topics(admin, settings, [expected[name] for name in expected if name not in created]):
        raise different
    return created


def _unlisted(admin: AdminClient, expected: dict[str, Topic]) -> dict[str, Topic]:
    """Return the topics that the cluster does not list; none while it does not answer."""
    try:
        listed = admin.list_topics(timeout=ADMIN_TIMEOUT_S).topics
    except KafkaException:
        return {}
    return {name: topic for name, topic in expected.items() if name not in listed}


def _create(admin: AdminClient, settings: Settings, missing: dict[str, Topic]) -> list[str]:
    """Create topics, by full name, and return the names of those that did not exist."""
    if not missing:
        return []
    new = [
        NewTopic(
            name,
            num_partitions=topic.partitions(settings.topic_partitions),
            replication_factor=replication_factor(settings),
            config=declared_config(topic, settings),
        )
        for name, topic in missing.items()
    ]
    created: list[str] = []
    futures = admin.create_topics(new, operation_timeout=ADMIN_TIMEOUT_S, request_timeout=ADMIN_TIMEOUT_S)
    for name, future in futures.items():
        try:
            future.result()
            created.append(name)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise _refused(error, name, missing[name], settings) from error
    return created


def _refused(error: KafkaException, name: str, topic: Topic, settings: Settings) -> LightstreamError:
    """What a cluster's refusal to create a topic is about, by the name of our setting."""
    code, reason = error.args[0].code(), error.args[0].str()
    config = declared_config(topic, settings)
    match code:
        case KafkaError.INVALID_PARTITIONS:
            refused, step = (
                f"{topic.partitions(settings.topic_partitions)} partitions",
                "Set LIGHTSTREAM_TOPIC_PARTITIONS.",
            )
        case KafkaError.INVALID_CONFIG | KafkaError.POLICY_VIOLATION:
            named = [key for key in config if key in reason] or list(config)
            refused = ", ".join(f"{key}={config[key]}" for key in named)
            step = f"Set LIGHTSTREAM_TOPIC_CONFIG={named[0]}=…, or {named[0]}= to leave it to the cluster."
            if "max.message.bytes" in named:
                step += " LIGHTSTREAM_RECORD_BYTES_MAX is the largest record that we write."
        case _:
            return kafka_unavailable(error, what=f"topic {name!r} was not created")
    return SettingsError(f"topic {name!r} was not created: the cluster refuses {refused}: {reason}", next_step=step)


def partitions_answer(admin: AdminClient, names: Iterable[str] | None = None, timeout_s: float = 2.0) -> bool:
    """True if every partition of these topics (``None``: of all topics) has a leader that serves it.

    A topic just created, and a broker just restarted, are listed a moment before they serve.
    """
    try:
        topics = admin.list_topics(timeout=timeout_s).topics
        required = list(topics) if names is None else list(names)
        if not all(name in topics and topics[name].partitions for name in required):
            return False
        end = {TopicPartition(name, partition): LATEST for name in required for partition in topics[name].partitions}
        if end:
            for offset in admin.list_offsets(end, request_timeout=timeout_s).values():
                offset.result()
    except KafkaException:
        return False
    return True


def differing_topics(
    admin: AdminClient, settings: Settings, topics: Iterable[Topic] = TOPICS
) -> list[TopicMismatchError]:
    """Return an error for each topic that exists with other settings than it is declared with.

    Raises:
        ServiceUnavailableError: the cluster does not answer, or refuses.
    """
    try:
        metadata = admin.list_topics(timeout=ADMIN_TIMEOUT_S).topics
        present = {name: topic for topic in topics if (name := topic.full_name(settings.topic_prefix)) in metadata}
        if not present:
            return []
        resources = {name: ConfigResource(ResourceType.TOPIC, name) for name in present}
        configs = admin.describe_configs(list(resources.values()), request_timeout=ADMIN_TIMEOUT_S)
        entries = {name: configs[resource].result().values() for name, resource in resources.items()}
    except KafkaException as error:
        raise kafka_unavailable(error, what="the settings of our topics cannot be read") from error
    different: list[TopicMismatchError] = []
    for name, topic in present.items():
        found = {entry.name: entry.value for entry in entries[name]}
        differences = {
            key: (declared, str(found.get(key)))
            for key, declared in declared_config(topic, settings).items()
            if str(found.get(key)) != declared
        }
        partitions = topic.partitions(settings.topic_partitions)
        if len(metadata[name].partitions) != partitions:
            differences["partitions"] = (str(partitions), str(len(metadata[name].partitions)))
        if differences:
            different.append(TopicMismatchError(name, differences))
    return different


def change_topics(settings: Settings) -> list[TopicMismatchError]:
    """Give topics that exist the settings they are declared with, retention included. Partitions stay as many.

    Returns:
        What differed before, by topic.

    Raises:
        SettingsError: the cluster refuses a setting; names it. Topics before that one are changed.
        AccessRefusedError: the cluster does not let this client in.
        ServiceUnavailableError: the cluster does not answer, or refuses.
    """
    admin, _ = connected(settings)
    changed: list[TopicMismatchError] = []
    for different in differing_topics(admin, settings):
        values = {name: value for name, (value, _) in different.differences.items() if name != "partitions"}
        if not values:
            continue
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in values.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, different.topic, incremental_configs=entries)
        (response,) = admin.incremental_alter_configs([resource], request_timeout=ADMIN_TIMEOUT_S).values()
        try:
            response.result()
        except KafkaException as error:
            if error.args[0].code() in (KafkaError.INVALID_CONFIG, KafkaError.POLICY_VIOLATION):
                refused = ", ".join(f"{name}={value}" for name, value in values.items())
                raise SettingsError(
                    f"topic {different.topic!r} was not changed: the cluster refuses {refused}: {error.args[0].str()}",
                    next_step="Correct LIGHTSTREAM_TOPIC_CONFIG.",
                ) from error
            raise kafka_unavailable(error, what=f"topic {different.topic!r} was not changed") from error
        changed.append(
            TopicMismatchError(different.topic, {n: both for n, both in different.differences.items() if n in values})
        )
    return changed
