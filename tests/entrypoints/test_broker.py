"""The embedded broker keeps its records and its port, whatever ends it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from lightstream.broker import KAFKA_VERSION, EmbeddedBroker, fetch_jars, prepare_quick_start
from lightstream.broker.jars import jars_folder, locked_jars
from lightstream.broker.java import class_cache
from lightstream.runtime.kafka import PartitionReader, consumer_config, create_topics, producer_config
from lightstream.runtime.services import discover
from lightstream.runtime.settings import Settings
from lightstream.schemas.topics import TRAINING_STEPS
from tests.support.processes import processes_of

TOPIC = TRAINING_STEPS.name


@pytest.fixture(scope="module")
def module_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedBroker, Settings]]:
    settings = Settings.load(data_dir=tmp_path_factory.mktemp("module-broker"))
    with EmbeddedBroker(settings) as broker:
        yield broker, settings


@pytest.fixture
def broker(module_broker: tuple[EmbeddedBroker, Settings]) -> EmbeddedBroker:
    module_broker[0].start()
    return module_broker[0]


@pytest.fixture
def broker_settings(broker: EmbeddedBroker, module_broker: tuple[EmbeddedBroker, Settings]) -> Settings:
    create_topics(module_broker[1])
    return module_broker[1]


def write(settings: Settings, value: str) -> None:
    producer = Producer(producer_config(settings))
    producer.produce(TOPIC, value.encode(), key="key")
    assert producer.flush(300) == 0


def read_all(settings: Settings) -> list[str]:
    _, end = PartitionReader(settings, TRAINING_STEPS, 0, group_id="reader").watermarks()
    consumer = Consumer(consumer_config(settings, group_id="reader"))
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        values = [m.value() for m in consumer.consume(end, timeout=300)]
    finally:
        consumer.close()
    return [value.decode() for value in values if value is not None]


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_records_and_port_survive(end: str, broker: EmbeddedBroker, broker_settings: Settings) -> None:
    address, pid = broker.start(), broker.pid
    write(broker_settings, f"before {end}")
    broker.stop() if end == "stop" else broker.kill()
    assert not broker.is_running
    assert not processes_of(broker_settings.data_dir)
    assert broker.start() == address
    assert broker.pid != pid
    assert f"before {end}" in read_all(broker_settings)
    write(broker_settings, f"after {end}")
    assert read_all(broker_settings)[-1] == f"after {end}"


def test_starting_twice_is_starting_once(broker: EmbeddedBroker, broker_settings: Settings) -> None:
    pid = broker.pid
    other = EmbeddedBroker(broker_settings)
    assert other.start() == broker.start() == discover(broker_settings, "broker").address
    assert other.pid == broker.pid == pid


def test_a_record_of_twenty_megabytes_passes(broker_settings: Settings) -> None:
    producer = Producer(producer_config(broker_settings) | {"compression.type": "none"})
    failures: list[object] = []
    producer.produce("spans", bytes(20_000_000), on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(300) == 0
    assert failures == [None]


def test_once_prepared_it_starts_from_what_java_loaded_before(tmp_path: Path) -> None:
    settings = Settings.load(data_dir=tmp_path)
    assert prepare_quick_start(settings)
    with EmbeddedBroker(settings) as broker:
        assert class_cache(fetch_jars(settings)).name in Path(f"/proc/{broker.pid}/maps").read_text()


def test_unprepared_it_starts_as_well_and_writes_the_same_records(tmp_path: Path) -> None:
    folder = jars_folder(Settings.load(cache_dir=tmp_path / "cache"))
    folder.mkdir(parents=True)
    for jar in fetch_jars(Settings.load()):
        (folder / jar.name).symlink_to(jar)
    settings = Settings.load(cache_dir=tmp_path / "cache", data_dir=tmp_path / "data", topic_partitions=1)
    with EmbeddedBroker(settings) as broker:
        settings = settings.model_copy(update={"kafka_bootstrap_servers": broker.start()})
        create_topics(settings)
        write(settings, "written by one that was not prepared")
    assert prepare_quick_start(Settings.load())
    with EmbeddedBroker(settings.model_copy(update={"cache_dir": None})) as broker:
        settings = settings.model_copy(update={"kafka_bootstrap_servers": broker.start()})
        write(settings, "and by one that was")
        assert read_all(settings) == ["written by one that was not prepared", "and by one that was"]


def test_it_writes_a_log(broker: EmbeddedBroker, broker_settings: Settings) -> None:
    assert "Kafka Server started" in (broker_settings.data_dir / "logs" / "broker.log").read_text()


def test_wipe_deletes_the_records(broker: EmbeddedBroker, broker_settings: Settings) -> None:
    write(broker_settings, "to be deleted")
    broker.wipe()
    assert not broker.is_running
    assert not (broker_settings.data_dir / "broker").exists()
    broker.wipe()  # nothing left: nothing to do
    broker.start()
    create_topics(broker_settings)
    assert read_all(broker_settings) == []


def test_a_reused_process_id_is_not_taken_for_the_broker(tmp_path: Path) -> None:
    import os

    from lightstream.runtime.services import Service, announce

    settings = Settings.load(data_dir=tmp_path)
    announce(settings, Service("broker", "127.0.0.1:1", os.getpid(), 0))
    broker = EmbeddedBroker(settings)
    assert not broker.is_running
    broker.stop()  # must not end this process
    broker.kill()


def test_the_lock_file_is_of_the_version_that_is_named() -> None:
    assert {jar.version for jar in locked_jars() if jar.group == "org.apache.kafka"} == {KAFKA_VERSION}
