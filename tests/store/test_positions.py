"""``positions`` and ``see``: what one store was told of, another one reflects, over HTTP too."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import StoreError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import LogPositions, PromptTemplate
from lightstream.store_views.stores import KafkaLightningStore
from lightstream.store_views.stores.http import LightningStoreClient, LightningStoreServer
from lightstream.store_views.stores.kafka.log import KafkaLog

from .support import begun, span_of

ROUNDS = 5
offsets = st.dictionaries(
    st.sampled_from(["rollouts", "spans", "a.b:c"]),
    st.dictionaries(st.integers(0, 5), st.integers(0, 2**62), min_size=1),
    min_size=1,
)


@asynccontextmanager
async def on_kafka(settings: Settings) -> AsyncGenerator[KafkaLightningStore]:
    store = KafkaLightningStore(settings)
    await store.start()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def over_http(settings: Settings, folder: Path) -> AsyncGenerator[LightningStoreClient]:
    """A client of a server of its own."""
    async with on_kafka(settings) as store:
        server = LightningStoreServer(store, port=0, settings=settings.model_copy(update={"data_dir": folder}))
        await server.start()
        client = LightningStoreClient(server.endpoint, settings=settings)
        try:
            yield client
        finally:
            await client.close()
            await server.stop()


@pytest.mark.parametrize("over", ["kafka", "http"])
async def test_what_one_store_was_told_of_another_reflects(kafka_settings: Settings, tmp_path: Path, over: str) -> None:
    async with AsyncExitStack() as stores:
        make = (
            (lambda n: on_kafka(kafka_settings))
            if over == "kafka"
            else lambda n: over_http(kafka_settings, tmp_path / n)
        )
        one: LightningStore = await stores.enter_async_context(make("one"))
        two: LightningStore = await stores.enter_async_context(make("two"))
        for number in range(ROUNDS):
            made = await one.add_resources({"prompt": PromptTemplate(template=str(number))})
            two.see(one.positions())
            assert await two.get_latest_resources() == made
            rollout = await begun(one)
            await one.add_span(span_of(rollout))
            two.see(one.positions())
            found = await two.get_rollout_by_id(rollout.rollout_id)
            assert found is not None
            assert found.status == "running"
            assert (await two.query_spans(rollout.rollout_id)).total == 1
            await two.update_rollout(rollout.rollout_id, status="cancelled")
            made = await two.update_resources(made.resources_id, {})
            one.see(two.positions())
            assert await one.get_resources_by_id(made.resources_id) == made
            assert made in list(await one.query_resources())


async def test_positions_of_another_log_are_left_aside(kafka_store: LightningStore) -> None:
    before = kafka_store.positions()
    kafka_store.see(LogPositions("another", {"resources": {0: 10**9}, "rollouts": {0: 10**9}, "spans": {0: 10**9}}))
    assert kafka_store.positions() == before
    await kafka_store.get_latest_resources()


@pytest.mark.parametrize("topic", ["rollouts", "spans", "resources"])
@pytest.mark.parametrize("places", [{0: 999_999_999_999}, {77: 5}, {0: 2**70}, {2**40: 1}])
async def test_positions_beyond_the_log_are_refused_and_told_to_nobody(
    kafka_settings: Settings, topic: str, places: dict[int, int]
) -> None:
    async with on_kafka(kafka_settings) as store:
        rollout = await begun(store)
        before = store.positions()
        with pytest.raises(StoreError, match=f"of {topic}/{next(iter(places))} is said to have been seen"):
            store.see(LogPositions(before.log, {topic: places}))
        with pytest.raises(StoreError, match="is said to have been seen"):
            store.see(LogPositions(before.log, {"rollouts": {0: 0, 1: 10**9}, topic: places}))
        assert store.positions() == before
        await store.update_rollout(rollout.rollout_id, status="cancelled")
        assert await store.get_rollout_by_id(rollout.rollout_id) is not None


async def test_a_client_is_told_that_its_positions_lie_beyond_the_log(kafka_settings: Settings, tmp_path: Path) -> None:
    async with over_http(kafka_settings, tmp_path) as client:
        await client.add_resources({})
        seen = client.positions()
        beyond = LogPositions(seen.log, {"rollouts": {0: 999_999_999_999, 77: 5}}).to_text()
        async with httpx.AsyncClient(base_url=client.server_address, timeout=60) as wire:
            said = await wire.get("/workers", headers={"lightstream-positions": beyond})
            after = await wire.get("/workers")
        assert (said.status_code, said.json()["error_type"]) == (400, "StoreError")
        assert "lightstream-positions" not in said.headers
        assert LogPositions.from_text(after.headers["lightstream-positions"]) == seen
        await client.cancel_rollout((await begun(client)).rollout_id)


async def test_a_client_in_another_process_has_seen_what_this_one_has(kafka_settings: Settings, tmp_path: Path) -> None:
    async with over_http(kafka_settings, tmp_path) as client:
        await client.add_resources({})
        seen = client.positions()
        assert seen.offsets["resources"][0] >= 0
        copy: LightningStoreClient = pickle.loads(pickle.dumps(client))  # noqa: S301  # our own bytes
        assert copy.positions() == seen
        await copy.close()
        async with httpx.AsyncClient(base_url=client.server_address, timeout=60) as wire:
            said = await wire.get("/workers", headers={"lightstream-positions": "x;rollouts:1"})
        assert (said.status_code, said.json()["error_type"]) == (400, "StoreError")


async def test_a_store_in_memory_has_none(store: LightningStore) -> None:
    if isinstance(store, KafkaLightningStore):
        return
    await store.add_resources({})
    store.see(LogPositions("x", {"rollouts": {0: 10**9}}))
    assert store.positions().offsets in ({}, {"rollouts": {0: 10**9}})
    assert await store.get_latest_resources() is not None


@given(one=offsets, two=offsets)
def test_merging_keeps_the_later(one: dict[str, dict[int, int]], two: dict[str, dict[int, int]]) -> None:
    first, second = LogPositions("log", one), LogPositions("log", two)
    both = first.merged(second)
    assert both == second.merged(first) == both.merged(first)
    for topic, places in both.offsets.items():
        for partition, offset in places.items():
            assert offset == max(one.get(topic, {}).get(partition, -1), two.get(topic, {}).get(partition, -1))
    assert LogPositions.from_text(both.to_text()) == both
    assert first.merged(LogPositions("other", two)) == LogPositions("other", two)
    assert first.merged(LogPositions()) == first
    assert both.covers(first)
    assert both.covers(second)
    assert first.covers(second) == (both == first)
    assert not both.covers(LogPositions("other", one))


@pytest.mark.parametrize("text", ["log;x", "log;t:1", "log;t:a=b", "log;t:1=2=3"])
def test_text_that_is_no_positions(text: str) -> None:
    with pytest.raises(StoreError, match="not a list of log positions"):
        LogPositions.from_text(text)


async def test_the_loop_of_the_caller_is_free_while_a_reader_catches_up(kafka_settings: Settings) -> None:
    async with on_kafka(kafka_settings) as one, on_kafka(kafka_settings) as two:
        # Seen elsewhere, not read here yet: in truth it is written only below, or it might be read too soon.
        log = two.store._log  # pyright: ignore[reportPrivateUsage]  # see() refuses what is not in the log
        assert isinstance(log, KafkaLog)
        log._resources.observe(one.positions().offsets.get("resources", {}).get(0, -1) + 1)  # pyright: ignore[reportPrivateUsage]  # see() refuses what is not in the log
        waiting = asyncio.ensure_future(two.get_latest_resources())
        assert not (await asyncio.wait({waiting}, timeout=0.2))[0]
        made = await one.add_resources({})
        assert await waiting == made
