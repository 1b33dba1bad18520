"""A topic is missing or forbidden when its reader starts, or holds what is no record: each reader says where."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeAlias

import pytest
import torch
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from lightstream.broker import EmbeddedBroker
from lightstream.producers.otlp.gateway import run as run_gateway
from lightstream.runtime.kafka import PartitionReader, common_config, create_topics, producer_config
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import LightstreamError, ServiceUnavailableError
from lightstream.schemas.topics import RESOURCES, ROLLOUT_EVENTS, SPANS, TRAJECTORIES, Topic
from lightstream.store_views.stores import KafkaLightningStore
from lightstream.trainers.rollouts.trajectory_source import TrajectorySource
from lightstream.trainers.servers.cpu.policy_version import Versions
from lightstream.trainers.servers.version_watcher import VersionWatcher
from tests.stream_processors.worker.harness import WorkerProcess
from tests.support.acl_broker import acl_broker, forbid_reading
from tests.support.waiting import eventually

TakeAway: TypeAlias = Callable[[Settings, Topic], None]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with acl_broker(tmp_path_factory.mktemp("acl")) as broker:
        yield broker


@pytest.fixture
def settings(broker: EmbeddedBroker, tmp_path: Path) -> Settings:
    made = Settings.load(
        kafka_bootstrap_servers=broker.start(), topic_prefix=f"t{uuid.uuid4().hex[:12]}.", data_dir=tmp_path
    )
    create_topics(made)
    return made


def delete(settings: Settings, topic: Topic) -> None:
    name = topic.full_name(settings.topic_prefix)
    admin = AdminClient(common_config(settings))  # has to live until it has the answer
    admin.delete_topics([name])[name].result(300)
    eventually(lambda: name not in admin.list_topics(timeout=60).topics)


TAKEN_AWAY = pytest.mark.parametrize(
    ("take_away", "step"),
    [
        pytest.param(delete, "lightstream topics create", id="missing"),
        pytest.param(forbid_reading, "Grant READ on topic", id="forbidden"),
    ],
)


def write_rubbish(settings: Settings, topic: Topic) -> str:
    """Two records that are none of ours; where the first is, as the log says it."""
    name = topic.full_name(settings.topic_prefix)
    producer = Producer(producer_config(settings))
    for _ in range(2):
        producer.produce(name, b"no record", partition=0, key=b"key")
    assert producer.flush(300) == 0
    return f"{name}[0] offset 0"


def passed_over(caplog: pytest.LogCaptureFixture) -> list[str]:
    messages = [record.getMessage() for record in caplog.records]
    return [message for message in messages if "no record of ours" in message]


def watch(settings: Settings) -> tuple[VersionWatcher, Versions, list[LightstreamError]]:
    versions, failures = Versions(torch.device("cpu"), torch.float32, 1), list[LightstreamError]()
    return VersionWatcher(settings, versions, on_failure=failures.append), versions, failures


@TAKEN_AWAY
def test_the_policy_server_says_it_and_lets_go_who_waits(settings: Settings, take_away: TakeAway, step: str) -> None:
    take_away(settings, RESOURCES)
    watcher, versions, failures = watch(settings)
    watcher.start()
    eventually(lambda: failures)
    watcher.stop()
    assert RESOURCES.full_name(settings.topic_prefix) in failures[0].message
    assert step in failures[0].next_step
    assert not versions.is_catching_up


def test_settings_that_the_client_refuses_let_go_who_waits_for_a_version(tmp_path: Path) -> None:
    certificate = tmp_path / "ca.pem"
    certificate.write_text("no certificate", "utf-8")
    settings = Settings.load(
        kafka_bootstrap_servers="127.0.0.1:1",
        kafka_security_protocol="SSL",
        kafka_ssl_ca_file=certificate,
        data_dir=tmp_path,
    )
    watcher, versions, failures = watch(settings)
    watcher.start()
    eventually(lambda: failures)
    watcher.stop()
    assert "LIGHTSTREAM_KAFKA_SECURITY_PROTOCOL" in failures[0].next_step
    assert not versions.is_catching_up


@TAKEN_AWAY
async def test_a_store_does_not_start(settings: Settings, take_away: TakeAway, step: str) -> None:
    take_away(settings, RESOURCES)
    store = KafkaLightningStore(settings)
    with pytest.raises(ServiceUnavailableError) as told:
        await store.start()
    assert RESOURCES.full_name(settings.topic_prefix) in told.value.message
    assert step in told.value.next_step


@TAKEN_AWAY
def test_a_trainer_does_not_wait_for_trajectories(settings: Settings, take_away: TakeAway, step: str) -> None:
    take_away(settings, TRAJECTORIES)

    def read() -> None:
        with closing(TrajectorySource(settings, "trainer", run_id="run")) as source:
            source.start({})
            eventually(lambda: source.poll(0.1))

    with pytest.raises(ServiceUnavailableError) as told:
        read()
    assert TRAJECTORIES.full_name(settings.topic_prefix) in told.value.message
    assert step in told.value.next_step


@TAKEN_AWAY
def test_a_partition_is_not_read(settings: Settings, take_away: TakeAway, step: str) -> None:
    write_rubbish(settings, SPANS)
    take_away(settings, SPANS)
    with pytest.raises(ServiceUnavailableError) as told:
        list(PartitionReader(settings, SPANS, 0, group_id="tests").records())
    assert SPANS.full_name(settings.topic_prefix) in told.value.message
    assert step in told.value.next_step


@TAKEN_AWAY
@pytest.mark.parametrize("topic", [ROLLOUT_EVENTS, SPANS], ids=lambda topic: topic.name)
def test_a_worker_ends(settings: Settings, topic: Topic, take_away: TakeAway, step: str) -> None:
    take_away(settings, topic)
    worker = WorkerProcess(settings)
    worker.launch()
    try:
        assert worker.wait() == 1
    finally:
        worker.kill()
    *_, last = worker.output.splitlines()
    assert repr(topic.full_name(settings.topic_prefix)) in last
    assert step in last


def test_a_gateway_ends_that_may_not_read_a_collectors_topic(settings: Settings) -> None:
    forbid_reading(settings, SPANS)
    name = SPANS.full_name(settings.topic_prefix)
    changed = settings.model_copy(
        update={"gateway_port": 0, "gateway_grpc_port": 0, "gateway_traces_topics": name, "gateway_wait_s": 0.2}
    )
    with pytest.raises(ServiceUnavailableError, match=f"Grant READ on topic '{name}'"):
        run_gateway(changed)


def test_the_policy_server_passes_over_what_is_no_record(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    place = write_rubbish(settings, RESOURCES)
    watcher, versions, failures = watch(settings)
    watcher.start()
    eventually(lambda: not versions.is_catching_up)
    watcher.stop()
    (said,) = passed_over(caplog)
    assert place in said
    assert not failures


async def test_a_store_passes_over_what_is_no_record(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    place = write_rubbish(settings, RESOURCES)
    store = KafkaLightningStore(settings)
    await store.start()
    await store.close()
    (said,) = passed_over(caplog)
    assert place in said


def test_a_trainer_passes_over_what_is_no_record(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    place = write_rubbish(settings, TRAJECTORIES)
    with closing(TrajectorySource(settings, "trainer", run_id="run")) as source:
        source.start({})
        ends = source.end_offsets()
        eventually(lambda: (source.poll(0.1), source.has_read(ends))[1])
        assert source.undecodable == 2
    (said,) = passed_over(caplog)
    assert place in said
