"""The doctor's checks of Kafka and the Schema Registry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from confluent_kafka import KafkaException, Message, TopicCollection
from confluent_kafka.admin import AdminClient

# Public names that the package's __all__ lacks.
from confluent_kafka.admin import ConfigResource, ResourceType, TopicDescription  # type: ignore[attr-defined]  # pyright: ignore[reportPrivateImportUsage]  # isort: skip

from lightstream.runtime.clock import NANOS_PER_SECOND, Clock, SystemClock
from lightstream.runtime.kafka import (
    PartitionReader,
    connected,
    differing_topics,
    kafka_user,
    logged_unix_nano,
    partitions_of,
)
from lightstream.runtime.schema_registry import SchemaRegistry
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import LightstreamError, ServiceUnavailableError, UnknownSchemaError
from lightstream.schemas.topics import ROLLOUT_EVENTS, TOPICS

from .finding import Finding, Level

GROUP_ID = "lightstream-doctor"
CONNECT_TIMEOUT_S = 10.0
REQUEST_TIMEOUT_S = 10.0
COPIES_WANTED = 3
OFFSETS_MINUTES_MIN = 7 * 24 * 60
"""Kafka's default. What rests for longer is read from the beginning."""
CLOCK_SECONDS_MAX = 60
NEEDED = {"READ", "WRITE", "DESCRIBE"}
A_SCHEMA_ID = 2**31 - 1
"""That no registry has."""


def cluster(settings: Settings) -> Iterator[Finding]:
    """Whether the cluster lets us in, has our topics as declared, keeps copies, and lets us use them."""
    try:
        admin, metadata = connected(settings, timeout_s=CONNECT_TIMEOUT_S)
    except ServiceUnavailableError as error:
        level = Level.ERROR if settings.kafka_bootstrap_servers else Level.WARNING  # ours is just not running
        yield Finding("kafka", level, error.message, error.next_step)
        return
    brokers = len(metadata.brokers)
    yield Finding("kafka", Level.FINE, f"Kafka answers, with {brokers} broker{'s' if brokers > 1 else ''}.")
    expected = [topic.full_name(settings.topic_prefix) for topic in TOPICS]
    missing = [name for name in expected if name not in metadata.topics]
    if missing:
        yield Finding(
            "topics", Level.ERROR, f"the cluster has no topic {', '.join(missing)}.", "lightstream topics create"
        )
    present = [name for name in expected if name in metadata.topics]
    leaderless = [name for name in present if any(p.leader < 0 for p in metadata.topics[name].partitions.values())]
    if leaderless:
        text = f"partitions of {', '.join(leaderless)} have no leader: nobody reads or writes them."
        yield Finding("copies", Level.ERROR, text, "Start the brokers that have them.")
    if not present:
        return
    looks: dict[str, Iterator[Finding]] = {
        "the settings of our topics": _settings(admin, settings),
        "the copies of our topics, and our rights": _copies_and_rights(admin, settings, present, brokers),
        "the brokers' settings": _broker_settings(admin, min(metadata.brokers)),
    }
    for what, look in looks.items():
        try:
            yield from look
        except (KafkaException, ServiceUnavailableError) as error:
            reason = error.args[0].str() if isinstance(error, KafkaException) else error.message
            step = f"Grant Describe and DescribeConfigs to {kafka_user(settings)}."
            yield Finding("rights", Level.WARNING, f"the cluster does not tell {what}: {reason}", step)


def _settings(admin: AdminClient, settings: Settings) -> Iterator[Finding]:
    different = differing_topics(admin, settings)
    for error in different:
        yield Finding("topics", Level.ERROR, error.message, error.next_step)
    if not different:
        yield Finding("topics", Level.FINE, "our topics have the settings that they are declared with.")


def _copies_and_rights(admin: AdminClient, settings: Settings, names: list[str], brokers: int) -> Iterator[Finding]:
    answers = admin.describe_topics(
        TopicCollection(names), include_authorized_operations=True, request_timeout=REQUEST_TIMEOUT_S
    )
    topics: list[TopicDescription] = [future.result() for future in answers.values()]
    partitions = [(topic.name, partition) for topic in topics for partition in topic.partitions]
    copies = min(len(partition.replicas) for _, partition in partitions)
    required = settings.topic_replication_factor or (COPIES_WANTED if brokers >= COPIES_WANTED else 1)
    if copies < required:
        loses = ": a lost broker loses records" if copies == 1 else ""
        yield Finding(
            "copies",
            Level.WARNING,
            f"some partitions have {copies} of {required} copies{loses}.",
            f"Set LIGHTSTREAM_TOPIC_REPLICATION_FACTOR={required} before topics are made; "
            "`kafka-reassign-partitions` adds copies.",
        )
    behind = sorted({name for name, partition in partitions if len(partition.isr) < len(partition.replicas)})
    if behind:
        text = f"copies of {', '.join(behind)} are behind: a broker is away, or slow."
        yield Finding("copies", Level.ERROR, text, "Look at the brokers' logs.")
    for topic in topics:
        allowed = {operation.name for operation in topic.authorized_operations or ()}
        lacking = sorted(NEEDED - allowed) if allowed and "ALL" not in allowed else []
        if lacking:
            yield Finding(
                "rights",
                Level.ERROR,
                f"{kafka_user(settings)} may not {', '.join(lacking)} topic {topic.name!r}.",
                "docs/operations.md lists the rights by prefix.",
            )


def _broker_settings(admin: AdminClient, broker: int) -> Iterator[Finding]:
    resource = ConfigResource(ResourceType.BROKER, str(broker))
    answer: dict[str, Any] = admin.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S)[resource].result()
    minutes = int(answer["offsets.retention.minutes"].value or 0)
    if minutes < OFFSETS_MINUTES_MIN:
        yield Finding(
            "offsets",
            Level.WARNING,
            f"the cluster forgets offsets after {minutes / 60:,.0f} hours without a consumer.",
            "Raise offsets.retention.minutes to a week at least: who rests longer reads from the beginning again.",
        )


def clock(settings: Settings, ours: Clock | None = None) -> Iterator[Finding]:
    """This machine's clock beside the brokers': the last event has the time at which a broker wrote it."""
    now_unix_nano = (ours or SystemClock()).now_unix_nano()
    try:
        logged = [
            logged_unix_nano(message)
            for partition in partitions_of(settings, ROLLOUT_EVENTS)
            for message in _last_of(PartitionReader(settings, ROLLOUT_EVENTS, partition, group_id=GROUP_ID))
        ]
    except LightstreamError:
        return  # the cluster's own check says why
    if not logged:
        return
    ahead_s = (max(logged) - now_unix_nano) / NANOS_PER_SECOND
    if ahead_s > CLOCK_SECONDS_MAX:
        yield Finding(
            "clock",
            Level.ERROR,
            f"this machine's clock is {ahead_s:,.0f} s behind the broker that wrote the last event.",
            "Set the clock (chrony, systemd-timesyncd): deadlines of rollouts follow it.",
        )
    else:
        yield Finding("clock", Level.FINE, "the last event is not from the future.")


def _last_of(reader: PartitionReader) -> Iterator[Message]:
    return reader.records(max(0, reader.watermarks()[1] - 1))


def registry(settings: Settings) -> Iterator[Finding]:
    """The Schema Registry, where one is named."""
    if settings.schema_registry_url is None:
        return
    try:
        SchemaRegistry(settings).fingerprint_of(A_SCHEMA_ID)
    except UnknownSchemaError:
        yield Finding("registry", Level.FINE, f"the Schema Registry at {settings.schema_registry_url} answers.")
    except ServiceUnavailableError as error:
        yield Finding("registry", Level.ERROR, error.message, error.next_step)
