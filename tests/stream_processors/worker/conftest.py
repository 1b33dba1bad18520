"""One worker for the tests that leave it alone."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from lightstream.runtime.kafka import KafkaPublisher, create_topics
from lightstream.runtime.settings import Settings

from .harness import WorkerProcess


@pytest.fixture(scope="module")
def shared_settings(kafka_servers: str, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    settings = Settings.load(
        kafka_bootstrap_servers=kafka_servers,
        topic_prefix=f"t{uuid.uuid4().hex[:12]}.",
        topic_partitions=2,
        data_dir=tmp_path_factory.mktemp("worker"),
    )
    create_topics(settings)
    return settings


@pytest.fixture(scope="module")
def shared_worker(shared_settings: Settings) -> Iterator[Settings]:
    """The settings of a worker that runs for all tests of a module."""
    with WorkerProcess(shared_settings):
        yield shared_settings


@pytest.fixture
def publisher(settings: Settings) -> Iterator[KafkaPublisher]:
    publisher = KafkaPublisher(settings, linger_ms=0.0)
    yield publisher
    publisher.close()
