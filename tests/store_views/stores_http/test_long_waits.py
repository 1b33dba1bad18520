"""Waits that are longer than one request of our own client: cut for it alone, since it asks again."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from lightstream.schemas.types import PromptTemplate
from lightstream.store_views.stores import InMemoryLightningStore

WAITS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "for an end, however long": ("POST", "/waits/rollouts", {"rollout_ids": ["r"], "timeout": None}),
    "for an end, for a minute": ("POST", "/waits/rollouts", {"rollout_ids": ["r"], "timeout": 60}),
    "for work": ("POST", "/queues/rollouts/dequeue", {"timeout_s": 60}),
    "for resources": ("GET", "/resources/latest", {"timeout_s": 60}),
    "for resources by name": ("GET", "/resources/rs", {"timeout_s": 60}),
}
SLICE_S = 0.2


@pytest.fixture(autouse=True)
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lightstream.store_views.stores.http._routes.WAIT_S_MAX", SLICE_S)


async def something_happens(store: InMemoryLightningStore) -> None:
    await store.enqueue_rollout(1)
    await store.update_rollout("r", status="succeeded")
    await store.update_resources("rs", {"prompt": PromptTemplate(template="x")})


@pytest.mark.parametrize("name", WAITS)
def test_another_client_waits_for_as_long_as_it_asked(
    wire: httpx.Client, behind: InMemoryLightningStore, name: str
) -> None:
    method, path, asked = WAITS[name]
    asyncio.run(behind.start_rollout(1, rollout_id="r"))
    with ThreadPoolExecutor(1) as threads:
        waiting: Future[httpx.Response]
        if method == "POST":
            waiting = threads.submit(wire.post, path, json=asked)
        else:
            waiting = threads.submit(wire.get, path, params=asked)
        with pytest.raises(TimeoutError):
            waiting.result(5 * SLICE_S)
        asyncio.run(something_happens(behind))
        said = waiting.result(300)
    assert said.status_code == 200
    assert said.json()
    assert "lightstream-unfinished" not in said.headers


def test_a_client_that_asks_again_is_told_that_the_wait_is_not_over(
    wire: httpx.Client, behind: InMemoryLightningStore
) -> None:
    asyncio.run(behind.start_rollout(1, rollout_id="r"))
    asked = {"rollout_ids": ["r"], "timeout": None}
    said = wire.post("/waits/rollouts", json=asked, headers={"lightstream-asks-again": "1"})
    assert (said.json(), "lightstream-unfinished" in said.headers) == ([], True)
