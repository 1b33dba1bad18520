"""Three embedded brokers: a copy of each record on each, of which one may fail; what status and doctor say of them."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import admin as kafka_admin
from confluent_kafka.admin import AdminClient

from lightstream.broker import EmbeddedBroker, EmbeddedBrokers
from lightstream.cli.doctor import Finding, Level
from lightstream.cli.doctor.cluster import cluster
from lightstream.runtime.kafka import KafkaPublisher, common_config, create_topics
from lightstream.runtime.services import find, running_services
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import BrokerError, SettingsError
from lightstream.schemas.records import EventKind, RolloutEvent
from lightstream.schemas.topics import ROLLOUT_EVENTS, SPANS
from tests.support.program import lightstream, program
from tests.support.waiting import eventually

ADMIN: Any = kafka_admin  # these names are public, but not in its __all__
NAMES = ["broker", "broker-2", "broker-3"]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return Settings.load(data_dir=tmp_path_factory.mktemp("three"), brokers=3)


@pytest.fixture(scope="module")
def brokers(settings: Settings) -> Iterator[list[EmbeddedBroker]]:
    """They have our topics."""
    with EmbeddedBrokers(settings) as brokers:
        create_topics(settings)
        yield brokers.each


def publish(settings: Settings) -> None:
    publisher = KafkaPublisher(settings)
    event = RolloutEvent(event_id="e", rollout_id="r", kind=EventKind.HEARTBEAT, occurred_unix_nano=time.time_ns())
    publisher.publish(ROLLOUT_EVENTS, "r", event).result(300)
    publisher.close()


def bad(settings: Settings) -> list[Finding]:
    return [one for one in cluster(settings) if one.level is not Level.FINE]


def says(settings: Settings, level: Level, text: str) -> bool:
    found = bad(settings)
    return any(one.level is level and text in one.text and one.next_step for one in found)


def test_each_record_has_three_copies_and_two_acknowledge(settings: Settings, brokers: list[EmbeddedBroker]) -> None:
    admin = AdminClient(common_config(settings))
    topic = admin.list_topics(timeout=30).topics[SPANS.name]
    assert [sorted(partition.replicas) for partition in topic.partitions.values()] == [[1, 2, 3]]
    resource = ADMIN.ConfigResource(ADMIN.ResourceType.TOPIC, SPANS.name)
    config = admin.describe_configs([resource], request_timeout=60)[resource].result()
    assert config["min.insync.replicas"].value == "2"
    internal = admin.list_topics(timeout=30).topics.get("__consumer_offsets")
    assert internal is None or all(len(one.replicas) == 3 for one in internal.partitions.values())
    assert bad(settings) == []
    assert [broker.name for broker in brokers] == NAMES


def test_one_may_be_away_and_the_doctor_says_so(settings: Settings, brokers: list[EmbeddedBroker]) -> None:
    publish(settings)
    brokers[0].kill()
    publish(settings)
    eventually(lambda: says(settings, Level.ERROR, "are behind: a broker is away"), what="the copies are behind")
    answer = json.loads(lightstream(settings.data_dir, "status", "--format", "json", LIGHTSTREAM_BROKERS="3").stdout)
    assert [service["name"] for service in answer["services"]] == NAMES[1:]
    events = next(topic for topic in answer["topics"] if topic["topic"] == ROLLOUT_EVENTS.name)
    assert events["records"] == 2
    assert events["stored_bytes"] > 0
    assert "broker does not run" in lightstream(settings.data_dir, "broker", "status", LIGHTSTREAM_BROKERS="3").stdout
    brokers[0].start()
    eventually(lambda: bad(settings) == [], what="all copies are there again")


def test_missing_copies_and_a_partition_without_a_leader(settings: Settings, brokers: list[EmbeddedBroker]) -> None:
    few = settings.model_copy(update={"topic_prefix": "few.", "topic_replication_factor": 1})
    create_topics(few)
    wanting = few.model_copy(update={"topic_replication_factor": None})
    assert bad(few) == []
    assert says(wanting, Level.WARNING, "some partitions have 1 of 3 copies: a lost broker loses records")
    spans = AdminClient(common_config(settings)).list_topics(timeout=30).topics[f"few.{SPANS.name}"]
    leader = brokers[spans.partitions[0].leader - 1]
    leader.kill()
    eventually(lambda: says(few, Level.ERROR, "have no leader"), what="nobody leads")
    assert any(f"few.{SPANS.name}" in one.text for one in bad(few))
    leader.start()
    eventually(lambda: bad(few) == [], what="it leads again")


def test_a_folder_keeps_its_number_of_brokers(
    settings: Settings, brokers: list[EmbeddedBroker], tmp_path: Path
) -> None:
    one = settings.model_copy(update={"brokers": 1})
    brokers[0].kill()
    with pytest.raises(BrokerError, match=r"those of 3 brokers, and LIGHTSTREAM_BROKERS is 1\..*LIGHTSTREAM_BROKERS=3"):
        EmbeddedBroker(one).start()
    brokers[0].start()
    folder = Settings.load(data_dir=tmp_path)
    (tmp_path / "broker" / "records").mkdir(parents=True)
    with pytest.raises(BrokerError, match="those of 1 broker, and LIGHTSTREAM_BROKERS is 3"):
        EmbeddedBrokers(folder.model_copy(update={"brokers": 3})).start()
    with pytest.raises(SettingsError, match="it must be 1 or 3"):
        Settings.load(brokers=2)


def _is_another(settings: Settings, name: str, pid: int) -> bool:
    found = find(settings, name)
    return found is not None and found.pid != pid


def test_up_keeps_each_of_them_running(tmp_path: Path) -> None:
    """One is killed, another hangs. The third, without a majority meanwhile, may be started again too."""
    settings = Settings.load(data_dir=tmp_path, kafka_bootstrap_servers=None, brokers=3)
    with program(settings, "up", "--no-view", "--no-proxy", "--no-gateway") as up:
        up.wait_for(*NAMES, "worker")
        first = {service.name: service.pid for service in running_services(settings)}
        os.kill(first["broker-2"], signal.SIGKILL)
        os.kill(first["broker-3"], signal.SIGSTOP)
        for name in ("broker-2", "broker-3"):
            eventually(partial(_is_another, settings, name, first[name]), what=f"{name} is back")
        publish(settings)
        eventually(lambda: bad(settings) == [], what="all copies are there again")
