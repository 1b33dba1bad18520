"""The limits of two topics are lowered and raised under load: nothing is lost or restarts, large calls are named."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from lightstream.producers import Runner, rollout
from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.processes import read_restarts
from lightstream.runtime.services import find
from lightstream.runtime.settings import Settings
from lightstream.schemas.topics import SPANS, TRAJECTORIES
from lightstream.schemas.types import LLM, ProxyLLM
from lightstream.store_views.stores import KafkaLightningStore
from lightstream.trainers import ViewClient
from lightstream.up import Stack
from tests.frameworks.model_server import Say, ScriptedModel, task_of
from tests.support.topic_limits import limit_topic
from tests.support.waiting import eventually

LOW, HIGH = 10_000, 2**24
LARGE_WORDS = 20_000
LARGE_EVERY = 5
CALLS = 2
"""Of each rollout."""


def answer(request: dict[str, Any]) -> Say:
    """Some answers have so many tokens that neither the call's record nor its trajectory fits."""
    task = request["messages"][0]["content"]
    return Say(" ".join(["word"] * LARGE_WORDS) if "at length" in task else "short")


@pytest.fixture
def model(tmp_path: Path) -> Iterator[str]:
    """Address of a model server."""
    server = HttpServer(ScriptedModel(answer).app, Settings.load(data_dir=tmp_path), name="model", announced=False)
    server.start()
    yield server.url
    server.stop()


@rollout
async def agent(task: str, llm: LLM) -> float:
    """Makes two calls; neither may fail."""
    async with AsyncOpenAI(base_url=llm.endpoint, api_key="none", max_retries=0) as client:
        for number in range(CALLS):
            content = f"{task} ({number})"
            await client.chat.completions.create(model=llm.model, messages=[{"role": "user", "content": content}])
    return 1.0


class Load:
    """Rollouts that are enqueued and run, ten at a time, until it is left."""

    def __init__(self, settings: Settings, endpoint: str) -> None:
        self._settings = settings
        self._endpoint = endpoint
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self.done: dict[str, str] = {}
        self.large: set[str] = set()

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def is_past(self, count: int) -> bool:
        """Whether so many rollouts are over; an error ends the load, and shows by the counts."""
        return len(self.done) >= count or not self._thread.is_alive()

    async def _run(self) -> None:
        store = KafkaLightningStore(self._settings)
        await store.start()
        await store.add_resources({"llm": ProxyLLM(endpoint=self._endpoint, model="policy")})
        runner = Runner(store, agent, settings=self._settings, n_concurrent=4)
        running = asyncio.ensure_future(runner.run())
        number = 0
        while not self._stopping.is_set():
            asked = list[str]()
            for _ in range(10):
                number += 1
                is_large = number % LARGE_EVERY == 0
                task = task_of(f"r{number}") + (" Answer at length." if is_large else "")
                made = await store.enqueue_rollout(task, "train")
                asked.append(made.rollout_id)
                if is_large:
                    self.large.add(made.rollout_id)
            for over in await store.wait_for_rollouts(rollout_ids=asked):
                self.done[over.rollout_id] = over.status
        runner.stop()
        await running
        await store.close()


def pids(stack: Stack) -> dict[str, int]:
    """The process of each service that is announced."""
    found = {name: find(stack.settings, name) for name in stack.names}
    return {name: service.pid for name, service in found.items() if service is not None}


def test_nothing_is_lost_while_limits_are_lowered_and_raised_under_load(tmp_path: Path, model: str) -> None:
    settings = Settings.load(data_dir=tmp_path, llm_upstream_url=f"{model}/v1", topic_partitions=2)
    with Stack(settings, services=("worker", "view", "proxy")) as stack:
        proxy = find(stack.settings, "proxy")
        assert proxy is not None
        processes = pids(stack)
        with Load(stack.settings, f"{proxy.address}/v1") as load:
            for limit_bytes in (LOW, HIGH, LOW, HIGH):
                for topic in (SPANS, TRAJECTORIES):
                    limit_topic(stack.settings, topic, limit_bytes)
                count = len(load.done) + 20
                eventually(lambda count=count: load.is_past(count), timeout_s=240.0, what="20 rollouts more")  # type: ignore[misc]  # bound at once
        assert set(load.done.values()) == {"succeeded"}
        view = ViewClient(stack.settings, patience_s=120.0)
        eventually(
            lambda: view.query("SELECT count(*) FROM trajectories").scalar() >= len(load.done), what="all trajectories"
        )
        whole, cut = (
            {row[0] for row in view.query(sql, at_least="now").rows}
            for sql in (
                "SELECT rollout_id FROM triplets GROUP BY ALL HAVING count(*) = 2",
                "SELECT rollout_id FROM dropped WHERE reason = 'too_large'",
            )
        )
        view.close()
        assert pids(stack) == processes
        assert read_restarts(stack.settings) == {}
    assert load.done.keys() - whole - cut == set(), "neither whole nor named"
    assert load.done.keys() - load.large - whole == set(), "small ones are whole"
    assert cut <= load.large
    assert cut, "some went out while the limits were low"
