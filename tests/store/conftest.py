"""The contract's tests run on every store."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator

import pytest

from lightstream.runtime.settings import Settings
from lightstream.schemas.interfaces import LightningStore
from lightstream.store_views.stores import InMemoryLightningStore, KafkaLightningStore
from lightstream.store_views.stores.http import LightningStoreClient
from lightstream.store_views.stores.kafka import dispatcher
from lightstream.up import Stack
from tests.store_views.stores_http.support import local_settings, served

from .support import cancel_what_is_left

BACK_ENDS = ["memory", "http", "kafka"]


@pytest.fixture(autouse=True)
def _patient_with_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that has just begun asks a worker for its queue, which takes a slow machine more than a second."""
    monkeypatch.setattr(dispatcher, "PATIENCE_S", 300.0)


@pytest.fixture(scope="session")
def http_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Settings]]:
    """Where a store is served from memory, and its settings."""
    settings = local_settings(tmp_path_factory.mktemp("served"))
    behind = InMemoryLightningStore()
    with served(behind, settings) as server:
        yield server.endpoint, settings
    asyncio.run(behind.close())


@pytest.fixture(scope="session")
def http_store(http_endpoint: tuple[str, Settings]) -> Iterator[LightningStoreClient]:
    """A client of that store."""
    endpoint, settings = http_endpoint
    client = LightningStoreClient(endpoint, settings=settings)
    asyncio.run(client.start())
    yield client
    asyncio.run(client.close())


@pytest.fixture(params=BACK_ENDS)
def store(request: pytest.FixtureRequest) -> Iterator[LightningStore]:
    """A started store. On Kafka and over HTTP it is shared by a session, so tests look at what is theirs."""
    if request.param in ("kafka", "http"):
        shared: LightningStore = request.getfixturevalue(f"{request.param}_store")
        yield shared
        asyncio.run(cancel_what_is_left(shared))
        return
    made = InMemoryLightningStore()
    asyncio.run(made.start())
    yield made
    asyncio.run(made.close())


@pytest.fixture(scope="session")
def kafka_settings(kafka_servers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Topics for the session, with a worker and a view."""
    settings = Settings.load(
        kafka_bootstrap_servers=kafka_servers,
        topic_prefix=f"t{uuid.uuid4().hex[:12]}.",
        topic_partitions=2,
        data_dir=tmp_path_factory.mktemp("store"),
    )
    with Stack(settings, services=["worker", "view"]) as stack:
        yield stack.settings


@pytest.fixture(scope="session")
def kafka_store(kafka_settings: Settings) -> Iterator[LightningStore]:
    """A store on Kafka for the session."""
    made = KafkaLightningStore(kafka_settings)
    asyncio.run(made.start())
    yield made
    asyncio.run(made.close())
