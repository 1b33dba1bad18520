"""Fixtures that every test may use: a broker per session, a clean set of topics per test, a broker of one's own."""

from __future__ import annotations

import functools
import gc
import os
import signal
import ssl
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from confluent_kafka.admin import AdminClient

from lightstream.broker import EmbeddedBroker
from lightstream.runtime.kafka import create_topics
from lightstream.runtime.settings import Settings
from tests.support.containers import engine_answers, kafka_container
from tests.support.topics import delete_topics

MEANT_FOR_TESTS = (
    "LIGHTSTREAM_KAFKA_BOOTSTRAP_SERVERS",
    "LIGHTSTREAM_TEST_AGENT_LIGHTNING_PYTHON",
    "LIGHTSTREAM_TEST_EXAMPLES",
    "LIGHTSTREAM_TEST_PYTHON",
    "LIGHTSTREAM_TEST_SCREENSHOTS",
    "LIGHTSTREAM_TEST_SEED",
    "LIGHTSTREAM_TEST_TRACKERS_PYTHON",
    "LIGHTSTREAM_TEST_VLLM_PYTHON",
)

for _name in [name for name in os.environ if name.startswith("LIGHTSTREAM_") and name not in MEANT_FOR_TESTS]:
    del os.environ[_name]  # a developer's own settings must not leak into the tests

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what it runs in the background without Ctrl-C, and every process that a test starts inherits that.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Each client of HTTP reads the machine's certificates, 40 ms of processor, for servers that have none: once is enough.
setattr(ssl, "create_default_context", functools.cache(ssl.create_default_context))  # noqa: B010  # type checkers: a cache is no function

# No timing is asserted in tests: a busy machine makes a slow example, not a wrong one.
hypothesis.settings.register_profile(
    "lightstream", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("lightstream")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Coroutine tests run on asyncio, each in a loop of its own, by anyio's plugin."""
    return "asyncio"


@pytest.fixture(scope="module", autouse=True)
def _clients_end_with_their_file() -> Iterator[None]:
    """Collect OpenAI's clients that a file left open: they close themselves in the loop that runs when they are
    collected, and in one of another test that fails."""
    yield
    if "openai" in sys.modules:
        gc.collect()


NEED_KAFKA = {"kafka_servers", "private_broker"}
"""Fixtures that start a broker."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need a broker, which a light install cannot start."""
    for item in items:
        if NEED_KAFKA.intersection(getattr(item, "fixturenames", ())):
            item.add_marker("kafka")


@pytest.fixture(scope="session")
def kafka_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker for the session: the one named in the environment, else a container, else the embedded one."""
    named = os.environ.get("LIGHTSTREAM_KAFKA_BOOTSTRAP_SERVERS")
    if named:
        yield named
        return
    broker_settings = Settings.load(data_dir=tmp_path_factory.mktemp("broker"))
    if engine_answers():
        with kafka_container(broker_settings) as address:
            yield address
        return
    with EmbeddedBroker(broker_settings) as broker:
        yield broker.start()
        gc.collect()  # clients end with their last reference; those that are left complain of its absence


@pytest.fixture(scope="session")
def kafka_admin(kafka_servers: str) -> AdminClient:
    """Asks the session's broker."""
    return AdminClient({"bootstrap.servers": kafka_servers, "log_level": 0})  # it may outlive the broker, and say so


@pytest.fixture
def settings(kafka_servers: str, kafka_admin: AdminClient, tmp_path: Path) -> Iterator[Settings]:
    """Settings of a test: topics of its own on the session's broker, a data folder of its own."""
    settings = Settings.load(
        kafka_bootstrap_servers=kafka_servers,
        topic_prefix=f"t{uuid.uuid4().hex[:12]}.",
        topic_partitions=2,
        data_dir=tmp_path,
    )
    create_topics(settings)
    yield settings
    delete_topics(kafka_admin, settings)


@pytest.fixture
def private_broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """An embedded broker of the test's own, running, for tests that stop or kill it."""
    with EmbeddedBroker(Settings.load(data_dir=tmp_path)) as broker:
        yield broker


@pytest.fixture
def private_settings(private_broker: EmbeddedBroker, tmp_path: Path) -> Settings:
    """Settings of a test on ``private_broker``, topics created."""
    settings = Settings.load(kafka_bootstrap_servers=private_broker.start(), topic_partitions=2, data_dir=tmp_path)
    create_topics(settings)
    return settings
