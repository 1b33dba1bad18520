"""A topic is deleted or forbidden while it is read: each reader says which topic and what to do, and none goes on."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from lightstream.broker import EmbeddedBroker
from lightstream.runtime.kafka import common_config, create_topics
from lightstream.runtime.services import find
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.schemas.topics import RESOURCES, TRAJECTORIES, Topic
from lightstream.store_views.stores import KafkaLightningStore
from lightstream.trainers.rollouts.trajectory_source import TrajectorySource
from tests.support.acl_broker import acl_broker, forbid_reading
from tests.support.waiting import eventually

WAIT_S = 120.0
PROCESSES = ("view", "policy")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with acl_broker(tmp_path_factory.mktemp("acl")) as broker:
        yield broker


@pytest.fixture
def settings(broker: EmbeddedBroker, tmp_path: Path) -> Settings:
    made = Settings.load(
        kafka_bootstrap_servers=broker.start(),
        topic_prefix=f"t{uuid.uuid4().hex[:12]}.",
        data_dir=tmp_path,
    )
    create_topics(made)
    return made


def delete(settings: Settings, topic: Topic) -> None:
    name = topic.full_name(settings.topic_prefix)
    admin = AdminClient(common_config(settings))  # has to live until it has the answer
    admin.delete_topics([name])[name].result(300)


def started(settings: Settings, name: str, stack: ExitStack) -> tuple[subprocess.Popen[bytes], Path]:
    """A process that serves, and what it says."""
    said = settings.data_dir / f"{name}.said"
    with said.open("wb") as output:
        command = [sys.executable, "-m", "lightstream.cli", name]
        process = subprocess.Popen(command, env=os.environ | settings.to_environment(), stdout=output, stderr=output)
    stack.callback(process.wait)
    stack.callback(process.kill)
    eventually(lambda: find(settings, name) is not None, what=f"the {name} serves")
    return process, said


@pytest.mark.parametrize(
    ("take_away", "said", "step"),
    [
        (delete, "was deleted|has no topic", "lightstream topics create"),
        (forbid_reading, "cannot be read", "Grant READ on topic"),
    ],
)
async def test_each_reader_names_the_topic_and_what_to_do(
    settings: Settings, take_away: object, said: str, step: str
) -> None:
    assert callable(take_away)
    store = KafkaLightningStore(settings)
    await store.start()
    source = TrajectorySource(settings, "trainer", run_id="run")
    with ExitStack() as stack, closing(source):
        source.start({})
        processes = [started(settings, name, stack) for name in PROCESSES]
        waiting = asyncio.create_task(store.get_latest_resources(timeout_s=10 * WAIT_S))
        for topic in (RESOURCES, TRAJECTORIES):
            take_away(settings, topic)

        with pytest.raises(ServiceUnavailableError, match=said) as told:
            await asyncio.wait_for(waiting, WAIT_S)
        assert RESOURCES.full_name(settings.topic_prefix) in told.value.message
        assert step in told.value.next_step
        with pytest.raises(ServiceUnavailableError, match=said):
            await store.get_latest_resources()

        def read_on() -> None:
            while True:
                source.poll(0.1)

        with pytest.raises(ServiceUnavailableError, match=said) as told:
            await asyncio.wait_for(asyncio.to_thread(read_on), WAIT_S)
        assert TRAJECTORIES.full_name(settings.topic_prefix) in told.value.message
        assert step in told.value.next_step

        for process, output in processes:
            assert process.wait(WAIT_S) == 1
            text = output.read_text()
            assert re.search(said, text), text
            assert step in text
            assert settings.topic_prefix in text
    await store.close()
