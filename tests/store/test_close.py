"""``close`` tells everybody who waits, and nobody waits after it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import AttemptedRollout, Rollout
from lightstream.store_views.stores import InMemoryLightningStore, KafkaLightningStore
from lightstream.store_views.stores.http import LightningStoreClient

from .conftest import BACK_ENDS
from .support import begun, taken, unique

LONG_S = 120.0
"""Nothing here takes so long, unless it waits forever."""


@asynccontextmanager
async def _own(back_end: str, request: pytest.FixtureRequest) -> AsyncGenerator[LightningStore]:
    """A store that nobody else uses, closed in the end; before that, by the test."""
    store: LightningStore
    if back_end == "memory":
        store = InMemoryLightningStore()
    elif back_end == "http":
        endpoint, its_settings = request.getfixturevalue("http_endpoint")
        store = LightningStoreClient(endpoint, settings=its_settings)
    else:
        settings: Settings = request.getfixturevalue("kafka_settings")
        store = KafkaLightningStore(settings)
    await store.start()
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture(params=BACK_ENDS)
def back_end(request: pytest.FixtureRequest) -> str:
    """Which store; those that others share are made before any event loop runs."""
    name: str = request.param
    if name != "memory":
        request.getfixturevalue({"http": "http_endpoint", "kafka": "kafka_settings"}[name])
    return name


async def test_who_waits_is_told(back_end: str, request: pytest.FixtureRequest) -> None:
    async with _own(back_end, request) as store:
        over, going_on = await begun(store), await begun(store)
        work = asyncio.create_task(store.dequeue_rollout("w", timeout_s=math.inf))
        several = asyncio.create_task(store.dequeue_many_rollouts(limit=3, timeout_s=math.inf))
        ends = asyncio.create_task(store.wait_for_rollouts(rollout_ids=[over.rollout_id, going_on.rollout_id]))
        resources = asyncio.create_task(store.get_resources_by_id(unique(), timeout_s=math.inf))
        waiting: set[asyncio.Task[object]] = {work, several, ends, resources}
        done, _ = await asyncio.wait(waiting, timeout=0.2)  # they wait, and not only begin to
        assert not done
        await store.update_attempt(over.rollout_id, "latest", status="succeeded")
        await store.close()
        await asyncio.wait(waiting, timeout=LONG_S)
        for task in (work, several):
            with pytest.raises(ServiceUnavailableError, match="closed"):
                task.result()
        if back_end == "http":
            with pytest.raises(ServiceUnavailableError, match="closed"):
                ends.result()
            with pytest.raises(ServiceUnavailableError, match="closed"):
                resources.result()
        else:
            assert _ids(ends.result()) == [over.rollout_id]
            assert resources.result() is None


@pytest.mark.parametrize("timeout_s", [0.5, math.inf])
async def test_nobody_waits_for_work_after_it(back_end: str, request: pytest.FixtureRequest, timeout_s: float) -> None:
    async with _own(back_end, request) as store:
        await store.close()
        for ask in (store.dequeue_rollout("w", timeout_s=timeout_s), store.dequeue_many_rollouts(timeout_s=timeout_s)):
            with pytest.raises(ServiceUnavailableError, match="closed"):
                await asyncio.wait_for(ask, LONG_S)


@pytest.mark.parametrize("back_end", ["http", "kafka"], indirect=True)
async def test_a_store_that_handed_out_work_takes_none_after_it(back_end: str, request: pytest.FixtureRequest) -> None:
    """The rollout stays for others."""
    async with _own(back_end, request) as store, _own(back_end, request) as other:
        await store.enqueue_rollout(1)
        await taken(store)
        made = await store.enqueue_rollout(2)
        await store.close()
        with pytest.raises(ServiceUnavailableError, match="closed"):
            await asyncio.wait_for(store.dequeue_rollout(), LONG_S)
        left: AttemptedRollout | None = await other.dequeue_rollout(timeout_s=LONG_S)
        assert left is not None
        assert (left.rollout_id, left.attempt.sequence_id) == (made.rollout_id, 1)


def _ids(rollouts: list[Rollout]) -> list[str]:
    return [rollout.rollout_id for rollout in rollouts]
