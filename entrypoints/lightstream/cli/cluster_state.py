"""What a person wants to know about the cluster: how full the topics are and how far each consumer group is behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

# A public name that the package's __all__ lacks.
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # pyright: ignore[reportPrivateImportUsage]  # isort: skip

from lightstream.schemas.kafka import common_config, kafka_unavailable
from lightstream.schemas.settings import Settings
from lightstream.schemas.topics import TOPICS

__all__ = ["ClusterState", "GroupLag", "TopicSize", "read_cluster_state", "stored_bytes"]

ADMIN_TIMEOUT_S = 10.0
EARLIEST: Any = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # the library leaves it untyped
LATEST: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # as above


@dataclass(frozen=True, slots=True)
class TopicSize:
    """One topic.

    Attributes:
        records: offsets between the first and the end, over all partitions. Transaction markers and what compaction
            removed in between are counted too.
        stored_bytes: size on disk, where the embedded broker keeps it; else ``None``.
    """

    topic: str
    partitions: int
    records: int
    stored_bytes: int | None


@dataclass(frozen=True, slots=True)
class GroupLag:
    """One consumer group on one topic: records not yet committed, over the partitions it has committed."""

    group: str
    topic: str
    committed: int
    lag: int


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Our topics that exist, and the groups that read them."""

    topics: list[TopicSize]
    lags: list[GroupLag]


def read_cluster_state(settings: Settings, records_folder: Path | None = None) -> ClusterState:
    """Ask the cluster.

    Args:
        records_folder: where an embedded broker keeps its partitions, to tell their sizes on disk.

    Raises:
        ServiceUnavailableError: no cluster is known or it does not answer.
    """
    admin = AdminClient(common_config(settings))
    names = [topic.full_name(settings.topic_prefix) for topic in TOPICS]
    try:
        metadata = admin.list_topics(timeout=ADMIN_TIMEOUT_S).topics
        partitions = [TopicPartition(n, p) for n in names if n in metadata for p in metadata[n].partitions]
        first = _offsets(admin, partitions, EARLIEST)
        end = _offsets(admin, partitions, LATEST)
        lags = _lags(admin, end)
    except (KafkaException, TimeoutError) as error:
        raise kafka_unavailable(error) from error
    topics = [
        TopicSize(
            name,
            len(metadata[name].partitions),
            sum(end[name, p] - first[name, p] for p in metadata[name].partitions),
            None if records_folder is None else stored_bytes(records_folder, name),
        )
        for name in names
        if name in metadata
    ]
    return ClusterState(topics, lags)


def stored_bytes(records_folder: Path, topic: str) -> int:
    """Disk space of a topic's segments in a broker's folder."""
    total = 0
    for folder in records_folder.glob(f"{topic}-[0-9]*"):
        if folder.name.rpartition("-")[0] == topic:
            for segment in folder.glob("*.log"):
                try:
                    total += segment.stat().st_size
                except FileNotFoundError:
                    continue  # deleted by the broker meanwhile
    return total


def _offsets(admin: AdminClient, partitions: list[TopicPartition], which: OffsetSpec) -> dict[tuple[str, int], int]:
    if not partitions:
        return {}
    futures = admin.list_offsets(dict.fromkeys(partitions, which), request_timeout=ADMIN_TIMEOUT_S)
    return {(p.topic, p.partition): future.result(ADMIN_TIMEOUT_S).offset for p, future in futures.items()}


def _lags(admin: AdminClient, end: Mapping[tuple[str, int], int]) -> list[GroupLag]:
    listed = admin.list_consumer_groups(request_timeout=ADMIN_TIMEOUT_S).result(ADMIN_TIMEOUT_S)
    committed: dict[tuple[str, str], int] = {}
    behind: dict[tuple[str, str], int] = {}
    for group in sorted(valid.group_id for valid in listed.valid):
        request = ConsumerGroupTopicPartitions(group)
        answer = admin.list_consumer_group_offsets([request], request_timeout=ADMIN_TIMEOUT_S)[group]
        for position in answer.result(ADMIN_TIMEOUT_S).topic_partitions or []:
            here = (position.topic, position.partition)
            if here in end and position.offset >= 0:
                key = (group, position.topic)
                committed[key] = committed.get(key, 0) + position.offset
                behind[key] = behind.get(key, 0) + max(0, end[here] - position.offset)
    return [GroupLag(group, topic, committed[group, topic], behind[group, topic]) for group, topic in committed]
