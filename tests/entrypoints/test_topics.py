"""Topics are made as declared; what differs is reported and left alone."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

# Public names that the package's __all__ lacks.
from confluent_kafka.admin import ConfigResource, NewTopic, ResourceType  # type: ignore[attr-defined]  # pyright: ignore[reportPrivateImportUsage]  # isort: skip

from lightstream.runtime.kafka import change_topics, common_config, create_topics
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import ServiceUnavailableError, SettingsError, TopicMismatchError
from lightstream.schemas.topics import ROLLOUTS, SPANS, TOPICS, TRAINING_STEPS
from tests.support.runs_command import lightstream


def config_of(admin: AdminClient, topic: str) -> dict[str, str | None]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    return {entry.name: entry.value for entry in admin.describe_configs([resource])[resource].result(300).values()}


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
    admin.create_topics([theirs])[name].result(300)
    with pytest.raises(TopicMismatchError, match="LIGHTSTREAM_TOPIC_PREFIX") as caught:
        create_topics(settings)
    assert caught.value.topic == name
    assert caught.value.differences["partitions"] == (str(settings.topic_partitions), "3")
    assert caught.value.differences["max.message.bytes"] == (str(32 * 1024 * 1024), "1000000")
    assert len(admin.list_topics(timeout=30).topics[name].partitions) == 3
    assert config_of(admin, name)["max.message.bytes"] == "1000000"


def test_topics_that_exist_get_a_retention(kafka_servers: str, tmp_path: Path) -> None:
    before = Settings.load(
        kafka_bootstrap_servers=kafka_servers, topic_prefix=f"t{uuid.uuid4().hex[:12]}.", data_dir=tmp_path
    )
    create_topics(before)
    admin = AdminClient(common_config(before))
    settings = before.model_copy(update={"topic_config": "spans:retention.ms=86400000", "topic_partitions": 7})
    with pytest.raises(TopicMismatchError, match="`lightstream topics change`"):
        create_topics(settings)

    told = lightstream(settings, "topics", "change")

    name = SPANS.full_name(settings.topic_prefix)
    assert told.strip() == f"{name}: retention.ms is 86400000, it was -1."
    assert config_of(admin, name)["retention.ms"] == "86400000"
    assert config_of(admin, name)["cleanup.policy"] == "delete"
    assert config_of(admin, ROLLOUTS.full_name(settings.topic_prefix))["retention.ms"] == "-1"
    assert lightstream(settings, "topics", "change").strip() == "All topics that exist are as declared."
    assert len(admin.list_topics(timeout=30).topics[name].partitions) == before.topic_partitions
    wrong = settings.model_copy(update={"topic_config": "spans:retention.ms=soon"})
    with pytest.raises(SettingsError, match=r"was not changed: the cluster refuses retention\.ms=soon"):
        change_topics(wrong)
    assert config_of(admin, name)["retention.ms"] == "86400000"


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


def _with(kafka_servers: str, folder: Path, config: str, prefix: str = "") -> Settings:
    return Settings.load(
        kafka_bootstrap_servers=kafka_servers,
        topic_prefix=prefix or f"t{uuid.uuid4().hex[:12]}.",
        data_dir=folder,
        topic_config=config,
    )


def test_settings_of_topics_are_added_changed_and_left_out(kafka_servers: str, tmp_path: Path) -> None:
    """For all topics or for one; the next start compares them, and what is left out is not compared."""
    config = "compression.type=lz4, spans:retention.ms=86400000, min.cleanable.dirty.ratio=, max.message.bytes=2000000"
    settings = _with(kafka_servers, tmp_path, config)
    create_topics(settings)
    admin = AdminClient(common_config(settings))
    spans = config_of(admin, SPANS.full_name(settings.topic_prefix))
    rollouts = config_of(admin, ROLLOUTS.full_name(settings.topic_prefix))
    assert (spans["compression.type"], spans["retention.ms"], spans["max.message.bytes"]) == (
        "lz4",
        "86400000",
        "2000000",
    )
    assert (rollouts["compression.type"], rollouts["retention.ms"]) == ("lz4", "-1")
    assert rollouts["min.cleanable.dirty.ratio"] == "0.5"  # the cluster's own
    assert create_topics(settings) == []
    with pytest.raises(TopicMismatchError, match=r"compression\.type: declared zstd, found lz4"):
        create_topics(_with(kafka_servers, tmp_path, config.replace("lz4", "zstd"), settings.topic_prefix))


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (
            "min.insync.replicas=0",
            r"refuses min\.insync\.replicas=0: .*LIGHTSTREAM_TOPIC_CONFIG=min\.insync\.replicas=",
        ),
        ("max.message.bytes=-1", r"refuses max\.message\.bytes=-1: .*LIGHTSTREAM_RECORD_BYTES_MAX"),
        ("no.such.setting=1", r"refuses no\.such\.setting=1: .*leave it to the cluster"),
    ],
)
def test_a_setting_that_the_cluster_refuses_is_named(
    kafka_servers: str, tmp_path: Path, config: str, text: str
) -> None:
    with pytest.raises(SettingsError, match=text):
        create_topics(_with(kafka_servers, tmp_path, config))


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ("compression.type", "is not name=value"),
        ("=1", "is not name=value"),
        ("span:retention.ms=1", "there is no topic 'span'; there are rollout-events, rollouts, spans"),
        ("spans:cleanup.policy=compact", "cleanup.policy is part of how our topics work"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_at_once(config: str, text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        Settings.load(topic_config=config)
