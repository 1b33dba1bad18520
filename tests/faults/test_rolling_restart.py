"""The store's server, the worker and the view are restarted one after the other; no call of any client raises."""

from __future__ import annotations

import asyncio
import sys
import threading
import uuid
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lightstream.producers import Runner, rollout
from lightstream.runtime.kafka import create_topics
from lightstream.runtime.ports import free_port
from lightstream.runtime.processes import ProcessUnit
from lightstream.runtime.settings import Settings
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import LLM, PromptTemplate, RolloutConfig, Span
from lightstream.store_views.stores import KafkaLightningStore
from lightstream.store_views.stores.http import LightningStoreClient
from tests.support.waiting import eventually
from tests.support.witness import Witness

SERVICES = ("store", "worker", "view")
SOAK_OUTAGE_S = 45.0

CONFIG = RolloutConfig(
    unresponsive_seconds=10.0, timeout_seconds=60.0, max_attempts=10, retry_condition=["unresponsive", "timeout"]
)
"""An attempt whose dispatch was under way when its server died is lost, and another follows."""


PATIENT = RolloutConfig(unresponsive_seconds=300.0, timeout_seconds=600.0)
"""An attempt of somebody who is held up by an outage, and stays its."""


class Services:
    """Processes that are stopped and started by hand."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._running: dict[str, ProcessUnit] = {}

    def start(self, name: str) -> None:
        unit = ProcessUnit(name, [sys.executable, "-m", "lightstream.cli", name], self._settings)
        unit.start()
        self._running[name] = unit

    def stop(self, name: str) -> None:
        """In good order, as a rolling restart does."""
        self._running.pop(name).stop()

    def stop_all(self) -> None:
        for name in list(self._running):
            self.stop(name)


@rollout
def agent(task: dict[str, int], llm: LLM) -> float:
    """Is its own reward."""
    return float(task["number"])


class User:
    """Somebody who enqueues, looks and waits, round after round, until told to stop."""

    def __init__(self, store: LightningStore, name: str) -> None:
        self.store = Witness(store)
        self.name = name
        self.rounds = 0
        self.asked: list[str] = []
        self.former = {f"{name}-prompt"}
        self.wrong: list[str] = []
        self.stopping = threading.Event()

    async def run(self) -> None:
        while not self.stopping.is_set():
            await self._round()
            self.rounds += 1

    async def _round(self) -> None:
        store = self.store
        resources = await store.add_resources({"llm": LLM(endpoint="http://x/v1", model=f"m@{self.rounds}")})
        latest = await store.get_latest_resources()
        # Whoever else writes may come between; what this user wrote before may not.
        self._check(latest is not None and latest.resources_id not in self.former, "resources went back")
        self.former.add(resources.resources_id)
        # Named, as the latest may by now be the other user's prompt, with which no agent can do anything.
        model = resources.resources_id
        made = await store.enqueue_rollout({"number": self.rounds}, "train", resources_id=model, config=CONFIG)
        self.asked.append(made.rollout_id)
        started = await store.start_rollout({"number": 0}, config=PATIENT)
        number = await store.get_next_span_sequence_id(started.rollout_id, started.attempt.attempt_id)
        span = Span.from_attributes(
            attributes={"n": number},
            rollout_id=started.rollout_id,
            attempt_id=started.attempt.attempt_id,
            sequence_id=number,
        )
        await store.add_span(span)
        self._check((await store.query_spans(started.rollout_id)).total == 1, "a span is missing, or there twice")
        await store.update_attempt(started.rollout_id, started.attempt.attempt_id, status="succeeded")
        found = await store.get_rollout_by_id(started.rollout_id)
        self._check(found is not None and found.status == "succeeded", f"own write is not seen: {found}")
        await store.wait_for_rollouts(rollout_ids=[made.rollout_id, started.rollout_id], timeout=0.0)
        await store.query_rollouts(rollout_id_in=[made.rollout_id], limit=1)
        await store.update_worker(self.name, {"rounds": self.rounds})
        await store.update_resources(f"{self.name}-prompt", {"p": PromptTemplate(template=str(self.rounds))})
        await store.update_rollout(made.rollout_id, metadata={"round": self.rounds})

    def _check(self, holds: bool, problem: str) -> None:
        if not holds:
            self.wrong.append(f"{self.name}, round {self.rounds}: {problem}")


@pytest.fixture
def services(kafka_servers: str, tmp_path: Path) -> Iterator[tuple[Settings, Services]]:
    settings = Settings.load(
        kafka_bootstrap_servers=kafka_servers,
        topic_prefix=f"t{uuid.uuid4().hex[:12]}.",
        topic_partitions=2,
        data_dir=tmp_path,
        store_port=free_port(),
        view_port=free_port(),
    )
    create_topics(settings)
    running = Services(settings)
    try:
        for name in ("worker", "view", "store"):
            running.start(name)
        yield settings, running
    finally:
        running.stop_all()


@contextmanager
def in_thread(users: list[User], runner: Runner) -> Generator[threading.Thread]:
    """All clients in a loop of their own; they end in order with the block."""

    async def everyone() -> None:
        running = asyncio.ensure_future(runner.run())
        await asyncio.gather(*(user.run() for user in users))
        for user in users:
            over = await user.store.wait_for_rollouts(rollout_ids=user.asked)
            user.wrong += [f"{done.rollout_id} is {done.status}" for done in over if done.status != "succeeded"]
            if len(over) != len(user.asked):
                user.wrong.append(f"{len(over)} of {len(user.asked)} are over")
        runner.stop()
        await running

    thread = threading.Thread(target=lambda: asyncio.run(everyone()))
    thread.start()
    try:
        yield thread
    finally:
        for user in users:
            user.stopping.set()
        thread.join()


def restart_all(settings: Settings, running: Services, outage_s: float) -> None:
    through_server = LightningStoreClient(f"http://127.0.0.1:{settings.store_port}", settings=settings)
    for_runner = LightningStoreClient(f"http://127.0.0.1:{settings.store_port}", settings=settings)
    on_kafka = KafkaLightningStore(settings)
    asyncio.run(on_kafka.start())
    users = [User(through_server, "http"), User(on_kafka, "kafka")]
    watched = Witness(for_runner)
    runner = Runner(watched, agent, settings=settings, n_concurrent=2, drain_timeout_s=30.0)
    with in_thread(users, runner) as thread:
        for name in (*SERVICES, "store"):
            before = [user.rounds for user in users]
            eventually(
                lambda before=before: (
                    not thread.is_alive()  # type: ignore[misc]  # bound per restart
                    or all(user.rounds > rounds for user, rounds in zip(users, before, strict=True))
                ),
                timeout_s=240.0,
                what=f"a round of every user before {name} is restarted",
            )
            running.stop(name)
            threading.Event().wait(outage_s)  # the outage itself
            running.start(name)
    for client in (through_server, for_runner, on_kafka):
        asyncio.run(client.close())
    assert [error for user in users for error in user.store.errors] == []
    assert watched.errors == []
    assert [problem for user in users for problem in user.wrong] == []
    assert all(user.rounds >= len(SERVICES) for user in users)
    assert watched.done["update_attempt"] >= sum(len(user.asked) for user in users)


def test_clients_do_not_notice_a_rolling_restart(services: tuple[Settings, Services]) -> None:
    restart_all(*services, outage_s=0.0)


@pytest.mark.soak
def test_clients_do_not_notice_outages_of_most_of_a_minute(services: tuple[Settings, Services]) -> None:
    restart_all(*services, outage_s=SOAK_OUTAGE_S)
