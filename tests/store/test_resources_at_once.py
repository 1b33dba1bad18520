"""``update_resources`` by many at once: every call makes a version of its own."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from lightstream.runtime.settings import Settings
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import LLM, NamedResources, PromptTemplate, ResourcesUpdate
from lightstream.store_views.stores import KafkaLightningStore
from lightstream.store_views.stores.kafka.log import KafkaLog

from .support import unique

CALLS = 10
THREADS = 4


async def _updates(store: LightningStore, name: str, calls: int) -> list[ResourcesUpdate]:
    templates = [PromptTemplate(template=str(number)) for number in range(calls)]
    return await asyncio.gather(*(store.update_resources(name, {"p": template}) for template in templates))


async def _are_told_apart(store: LightningStore, name: str, made: list[ResourcesUpdate]) -> None:
    made.sort(key=lambda update: update.version)
    assert [update.version for update in made] == list(range(1, len(made) + 1))
    assert await store.get_resources_by_id(name) == made[-1]
    assert {update.create_time for update in made} == {made[0].create_time}


async def test_tasks_of_one_loop(store: LightningStore) -> None:
    name = unique()
    await _are_told_apart(store, name, await _updates(store, name, CALLS))


async def test_threads_with_loops_of_their_own(store: LightningStore) -> None:
    name = unique()

    def update() -> list[ResourcesUpdate]:
        return asyncio.run(_updates(store, name, CALLS))

    with ThreadPoolExecutor(THREADS) as pool:
        threads = [asyncio.wrap_future(pool.submit(update)) for _ in range(THREADS)]
        made = [update for updates in await asyncio.gather(*threads) for update in updates]
    await _are_told_apart(store, name, made)


async def test_stores_of_their_own(kafka_settings: Settings) -> None:
    """As in several processes: only the log is between them."""
    name = unique()
    stores = [KafkaLightningStore(kafka_settings) for _ in range(3)]
    await asyncio.gather(*(store.start() for store in stores))
    try:
        made = [
            update
            for updates in await asyncio.gather(*(_updates(store, name, CALLS) for store in stores))
            for update in updates
        ]
        positions = [store.positions() for store in stores]
        for store in stores:
            for told in positions:
                store.see(told)  # else it may not have read yet what another wrote
            await _are_told_apart(store, name, made)
    finally:
        await asyncio.gather(*(store.close() for store in stores))


async def test_resources_that_are_not_in_memory_any_more_come_from_the_view(kafka_settings: Settings) -> None:
    store = KafkaLightningStore(kafka_settings)
    log = store.store._log  # pyright: ignore[reportPrivateUsage]  # 10,000 take too long
    assert isinstance(log, KafkaLog)
    log._resources._kept_max = 2  # pyright: ignore[reportPrivateUsage]  # 10,000 take too long
    await store.start()
    try:
        family = unique()
        llm: NamedResources = {"policy": LLM(endpoint="http://e", model="m", sampling_parameters={"temperature": 0.5})}
        first = await store.update_resources(f"{family}-a", llm)
        others = [await store.update_resources(f"{family}-{name}", {}) for name in "bc"]
        assert await store.get_resources_by_id(f"{family}-a") == first
        found = await store.query_resources(resources_id_contains=family)
        assert list(found) == [first, *others]
        again = await store.update_resources(f"{family}-a", llm)
        assert (again.version, again.create_time) == (first.version + 1, first.create_time)
        assert await store.get_latest_resources() == again
    finally:
        await store.close()
