"""``enqueue_rollout``, ``enqueue_many_rollouts``, ``dequeue_rollout``, ``dequeue_many_rollouts``."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import Assembly, AttemptedRollout, EnqueueRolloutRequest, PromptTemplate, RolloutConfig
from lightstream.store_views.stores.http import LightningStoreClient
from lightstream.store_views.stores.identity import repeatable
from tests.store_views.stores_http.support import local_settings, served

from .support import cancel_what_is_left, taken, under_way, unique


async def test_enqueue_rollout_queues(store: LightningStore) -> None:
    config = RolloutConfig(timeout_seconds=30.0, unresponsive_seconds=5.0, max_attempts=2, retry_condition=["timeout"])
    made = await store.enqueue_rollout(input={"a": "é☃"}, mode="train", config=config, metadata={"m": 1})
    assert (made.status, made.mode, made.input, made.metadata) == ("queuing", "train", {"a": "é☃"}, {"m": 1})
    assert (made.config, made.end_time) == (config, None)
    assert not isinstance(made, AttemptedRollout)
    assert await store.get_rollout_by_id(made.rollout_id) == made
    assert list(await store.query_attempts(made.rollout_id)) == []


async def test_enqueue_rollout_has_defaults(store: LightningStore) -> None:
    made = await store.enqueue_rollout(None)
    assert (made.input, made.mode, made.config, made.metadata) == (None, None, RolloutConfig(), {})
    assert (made.group_id, made.run_id) == (None, None)
    assert "group_id" not in made.model_dump()


async def test_enqueue_rollout_takes_the_latest_resources(store: LightningStore) -> None:
    update = await store.add_resources({"prompt": PromptTemplate(template="{x}")})
    assert (await store.enqueue_rollout(1)).resources_id == update.resources_id
    assert (await store.enqueue_rollout(1, resources_id="named")).resources_id == "named"


async def test_enqueue_rollout_at_once_with_one_id_is_one_rollout(store: LightningStore) -> None:
    """Both write the same event before the verdict on either is there, and both are told."""
    rollout_id = unique("at once")
    made = await asyncio.gather(*(store.enqueue_rollout(1, rollout_id=rollout_id) for _ in range(3)))
    assert {(rollout.rollout_id, rollout.input, rollout.status) for rollout in made} == {(rollout_id, 1, "queuing")}
    assert len(list(await store.query_rollouts(rollout_id_in=[rollout_id]))) == 1


async def test_the_same_write_twice_at_once_is_answered_twice(kafka_store: LightningStore) -> None:
    """As by two servers that were asked with one idempotency key: one event's id, two who wait for its verdict."""
    seed = unique("seed")

    async def write() -> str:
        with repeatable(seed):
            return (await kafka_store.enqueue_rollout(1)).rollout_id

    first, second = await asyncio.gather(write(), write())
    assert first == second
    await kafka_store.cancel_rollout(first)


async def test_enqueue_rollout_twice_with_one_id_is_one_rollout(store: LightningStore) -> None:
    rollout_id = unique("again/☃")
    first = await store.enqueue_rollout(1, rollout_id=rollout_id, group_id="g", group_size=2, run_id="r")
    second = await store.enqueue_rollout(2, rollout_id=rollout_id)
    assert first == second
    assert (second.input, second.group_id, second.group_size, second.run_id) == (1, "g", 2, "r")
    assert (await taken(store)).rollout_id == rollout_id
    assert await store.dequeue_rollout() is None


async def test_a_rollout_keeps_the_rules_of_its_run(store: LightningStore) -> None:
    rules = Assembly(credit="discounted:0.5", reward_match="log_order", trained_agents="^planner$")
    some = Assembly(trained_agents="")
    asked = [
        EnqueueRolloutRequest(input=n, run_id="r", assembly=own) for n, own in enumerate([rules, some, Assembly()])
    ]
    made = await store.enqueue_many_rollouts(asked)
    assert [rollout.assembly for rollout in made] == [rules, some, None]
    again = await store.enqueue_rollout(0, rollout_id=made[0].rollout_id, assembly=some)
    assert again.assembly == rules
    assert [(await taken(store)).assembly for _ in made] == [rules, some, None]
    found = await store.query_rollouts(rollout_id_in=[rollout.rollout_id for rollout in made])
    assert {rollout.rollout_id: rollout.assembly for rollout in found} == {r.rollout_id: r.assembly for r in made}
    started = await store.start_rollout(1, assembly=rules)
    assert (started.assembly, await store.get_rollout_by_id(started.rollout_id)) == (rules, started)


async def test_enqueue_many_rollouts_keeps_their_order(store: LightningStore) -> None:
    made = await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=i, mode="test") for i in range(10)])
    assert [rollout.input for rollout in made] == list(range(10))
    assert {rollout.mode for rollout in made} == {"test"}
    assert len({rollout.rollout_id for rollout in made}) == 10


async def test_enqueue_many_rollouts_of_none(store: LightningStore) -> None:
    assert list(await store.enqueue_many_rollouts([])) == []


async def test_dequeue_rollout_makes_an_attempt(store: LightningStore) -> None:
    asked = await store.enqueue_rollout({"a": 1}, mode="val")
    rollout = await taken(store, "w1")
    assert (rollout.rollout_id, rollout.input, rollout.mode) == (asked.rollout_id, {"a": 1}, "val")
    assert (rollout.status, rollout.attempt.status) == ("preparing", "preparing")
    assert (rollout.attempt.sequence_id, rollout.attempt.worker_id) == (1, "w1")
    assert await store.get_rollout_by_id(asked.rollout_id) == rollout


async def test_dequeue_rollout_of_an_empty_queue(store: LightningStore) -> None:
    assert await store.dequeue_rollout() is None
    assert await store.dequeue_rollout(worker_id="w") is None


async def test_dequeue_rollout_takes_the_oldest_first(store: LightningStore) -> None:
    asked = [await store.enqueue_rollout(i) for i in range(5)]
    assert [(await taken(store)).rollout_id for _ in asked] == [rollout.rollout_id for rollout in asked]


async def test_dequeue_rollout_waits_for_work(store: LightningStore) -> None:
    waiting = await under_way(store.dequeue_rollout("w", timeout_s=60), store.dequeue_rollout(timeout_s=0.1))
    asked = await store.enqueue_rollout(1)
    rollout = await waiting
    assert rollout is not None
    assert rollout.rollout_id == asked.rollout_id


@pytest.mark.parametrize("limit", [1, 3])
async def test_dequeue_rollout_that_is_cancelled_takes_nothing(store: LightningStore, limit: int) -> None:
    waiting = await under_way(
        store.dequeue_many_rollouts(limit=limit, worker_id="left", timeout_s=60), store.dequeue_rollout(timeout_s=0.1)
    )
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    asked = [(await store.enqueue_rollout(i)).rollout_id for i in range(limit)]
    got = [await store.dequeue_rollout("stays", timeout_s=60) for _ in asked]
    assert sorted(rollout.rollout_id for rollout in got if rollout) == sorted(asked)
    for rollout_id in asked:
        await store.update_attempt(rollout_id, "latest", status="succeeded")
        over = await store.get_rollout_by_id(rollout_id)
        assert over is not None
        assert over.status == "succeeded"


def test_dequeue_rollout_over_http_from_kafka_that_is_cancelled_takes_nothing(
    kafka_store: LightningStore, tmp_path: Path
) -> None:
    async def scenario(client: LightningStoreClient) -> None:
        for number in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.dequeue_rollout("left", timeout_s=60), 0.2)
            made = await client.enqueue_rollout(number)
            got = await client.dequeue_rollout("stays", timeout_s=60)
            assert got is not None
            assert (got.rollout_id, got.attempt.worker_id) == (made.rollout_id, "stays")
        await client.close()

    settings = local_settings(tmp_path)
    with served(kafka_store, settings) as server:
        asyncio.run(scenario(LightningStoreClient(server.endpoint, settings=settings)))
    asyncio.run(cancel_what_is_left(kafka_store))


async def test_dequeue_rollout_passes_over_what_no_longer_waits(store: LightningStore) -> None:
    first = await store.enqueue_rollout(1)
    second = await store.enqueue_rollout(2)
    await store.cancel_rollout(first.rollout_id)
    assert (await taken(store)).rollout_id == second.rollout_id
    assert await store.dequeue_rollout() is None


async def test_dequeue_rollout_gives_each_to_one(store: LightningStore) -> None:
    asked = await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=i) for i in range(20)])
    got = await asyncio.gather(*(store.dequeue_rollout(f"w{i}") for i in range(20)))
    assert sorted(rollout.rollout_id for rollout in got if rollout) == sorted(rollout.rollout_id for rollout in asked)


async def test_dequeue_rollout_takes_up_retries(store: LightningStore) -> None:
    await store.enqueue_rollout(1, config=RolloutConfig(max_attempts=2, retry_condition=["failed"]))
    first = await taken(store)
    await store.update_attempt(first.rollout_id, "latest", status="failed")
    second = await taken(store)
    assert (second.rollout_id, second.attempt.sequence_id) == (first.rollout_id, 2)


@pytest.mark.parametrize(("limit", "expected"), [(0, 0), (2, 2), (9, 3)])
async def test_dequeue_many_rollouts_takes_up_to_a_limit(store: LightningStore, limit: int, expected: int) -> None:
    asked = [(await store.enqueue_rollout(i)).rollout_id for i in range(3)]
    got = await store.dequeue_many_rollouts(limit=limit, worker_id="w")
    assert [rollout.rollout_id for rollout in got] == asked[:expected]
    assert all(rollout.attempt.worker_id == "w" for rollout in got)


async def test_dequeue_many_rollouts_of_an_empty_queue(store: LightningStore) -> None:
    assert list(await store.dequeue_many_rollouts(limit=3)) == []
