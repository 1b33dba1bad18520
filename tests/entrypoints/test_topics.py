"""Topics are made as declared; what differs is reported and left alone."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

# Public names that the package's __all__ lacks.
from confluent_kafka.admin import ConfigResource, NewTopic, ResourceType  # type: ignore[attr-defined]  # pyright: ignore[reportPrivateImportUsage]  # isort: skip

from lightstream.runtime.kafka import common_config, create_topics
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import ServiceUnavailableError, TopicMismatchError
from lightstream.schemas.topics import ROLLOUTS, SPANS, TOPICS, TRAINING_STEPS


def config_of(admin: AdminClient, topic: str) -> dict[str, str | None]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    return {entry.name: entry.value for entry in admin.describe_configs([resource])[resource].result(30).values()}


def test_topics_are_made_as_declared(settings: Settings) -> None:
    admin = AdminClient(common_config(settings))
    topics = admin.list_topics(timeout=30).topics
    assert {t.full_name(settings.topic_prefix) for t in TOPICS} <= set(topics)
    assert len(topics[SPANS.full_name(settings.topic_prefix)].partitions) == settings.topic_partitions
    assert len(topics[TRAINING_STEPS.full_name(settings.topic_prefix)].partitions) == 1
    spans = config_of(admin, SPANS.full_name(settings.topic_prefix))
    assert spans["cleanup.policy"] == "delete"
    assert spans["retention.ms"] == "-1"
    assert spans["max.message.bytes"] == str(32 * 1024 * 1024)
    assert config_of(admin, ROLLOUTS.full_name(settings.topic_prefix))["cleanup.policy"] == "compact"


def test_creating_them_again_changes_nothing(settings: Settings) -> None:
    assert create_topics(settings) == []


def test_other_settings_are_reported_and_not_changed(kafka_servers: str, tmp_path: Path) -> None:
    settings = Settings.load(
        kafka_bootstrap_servers=kafka_servers, topic_prefix=f"t{uuid.uuid4().hex[:12]}.", data_dir=tmp_path
    )
    admin = AdminClient(common_config(settings))
    name = SPANS.full_name(settings.topic_prefix)
    theirs = NewTopic(name, num_partitions=3, replication_factor=1, config={"max.message.bytes": "1000000"})
    admin.create_topics([theirs])[name].result(30)
    with pytest.raises(TopicMismatchError, match="LIGHTSTREAM_TOPIC_PREFIX") as caught:
        create_topics(settings)
    assert caught.value.topic == name
    assert caught.value.differences["partitions"] == (str(settings.topic_partitions), "3")
    assert caught.value.differences["max.message.bytes"] == (str(32 * 1024 * 1024), "1000000")
    assert len(admin.list_topics(timeout=30).topics[name].partitions) == 3
    assert config_of(admin, name)["max.message.bytes"] == "1000000"


def test_more_copies_than_brokers_are_refused_with_the_setting_to_change(kafka_servers: str, tmp_path: Path) -> None:
    brokers = len(AdminClient({"bootstrap.servers": kafka_servers}).list_topics(timeout=30).brokers)
    settings = Settings.load(
        kafka_bootstrap_servers=kafka_servers,
        topic_prefix=f"t{uuid.uuid4().hex[:12]}.",
        topic_replication_factor=brokers + 1,
        data_dir=tmp_path,
    )
    with pytest.raises(ServiceUnavailableError, match=r"was not created.*LIGHTSTREAM_TOPIC_REPLICATION_FACTOR"):
        create_topics(settings)
