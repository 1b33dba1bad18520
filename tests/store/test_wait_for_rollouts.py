"""``wait_for_rollouts``."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import RolloutConfig

from .support import begun, span_of, under_way

TIMEOUT_S = 120.0


async def test_wait_for_rollouts_that_are_over(store: LightningStore) -> None:
    first, second = await begun(store), await begun(store)
    await store.update_rollout(first.rollout_id, status="succeeded")
    await store.update_rollout(second.rollout_id, status="failed")
    ids = [second.rollout_id, first.rollout_id]
    ended = await store.wait_for_rollouts(rollout_ids=ids, timeout=TIMEOUT_S)
    assert [(rollout.rollout_id, rollout.status) for rollout in ended] == [(ids[0], "failed"), (ids[1], "succeeded")]


async def test_wait_for_rollouts_returns_what_is_over_when_time_is(store: LightningStore) -> None:
    first, second = await begun(store), await begun(store)
    await store.update_rollout(first.rollout_id, status="succeeded")
    for timeout in (0.1, 0.0):
        ended = await store.wait_for_rollouts(rollout_ids=[first.rollout_id, second.rollout_id], timeout=timeout)
        assert [rollout.rollout_id for rollout in ended] == [first.rollout_id]
    assert await store.wait_for_rollouts(rollout_ids=[second.rollout_id], timeout=0.1) == []


@pytest.mark.parametrize("status", ["succeeded", "failed", "cancelled"])
async def test_wait_for_rollouts_is_woken_by_their_end(store: LightningStore, status: Any) -> None:
    made = await begun(store)
    ids = [made.rollout_id]
    waiting = await under_way(
        store.wait_for_rollouts(rollout_ids=ids), store.wait_for_rollouts(rollout_ids=ids, timeout=0.1)
    )
    await store.update_rollout(made.rollout_id, status=status)
    (ended,) = await asyncio.wait_for(waiting, TIMEOUT_S)
    assert ended.status == status


async def test_wait_for_rollouts_is_woken_by_a_time_out(store: LightningStore) -> None:
    made = await begun(store, config=RolloutConfig(timeout_seconds=0.3))
    (ended,) = await store.wait_for_rollouts(rollout_ids=[made.rollout_id], timeout=TIMEOUT_S)
    assert ended.status == "failed"
    attempt = await store.get_latest_attempt(made.rollout_id)
    assert attempt is not None
    assert attempt.status == "timeout"


async def test_wait_for_rollouts_does_not_wait_for_what_does_not_exist(store: LightningStore) -> None:
    made = await begun(store)
    await store.update_rollout(made.rollout_id, status="succeeded")
    ended = await store.wait_for_rollouts(rollout_ids=["nonexistent", made.rollout_id])
    assert [rollout.rollout_id for rollout in ended] == [made.rollout_id]
    assert await store.wait_for_rollouts(rollout_ids=["nonexistent"], timeout=TIMEOUT_S) == []
    assert await store.wait_for_rollouts(rollout_ids=[], timeout=TIMEOUT_S) == []


async def test_wait_for_rollouts_waits_through_retries(store: LightningStore) -> None:
    made = await begun(store, config=RolloutConfig(max_attempts=2, retry_condition=["failed"]))
    waiting = asyncio.create_task(store.wait_for_rollouts(rollout_ids=[made.rollout_id], timeout=TIMEOUT_S))
    await store.update_attempt(made.rollout_id, "latest", status="failed")
    again = await store.dequeue_rollout()
    assert again is not None
    assert not waiting.done()
    await store.add_span(span_of(again))
    await store.update_attempt(made.rollout_id, "latest", status="succeeded")
    assert [rollout.status for rollout in await waiting] == ["succeeded"]


@pytest.mark.parametrize("enough", [{"count": 2}, {"share": 0.5}])
async def test_wait_for_rollouts_for_some_of_many(store: LightningStore, enough: dict[str, Any]) -> None:
    ids = [(await begun(store)).rollout_id for _ in range(4)]
    first, second = ids[1:3]
    waiting = await under_way(
        store.wait_for_rollouts(rollout_ids=ids, timeout=TIMEOUT_S, **enough),
        store.wait_for_rollouts(rollout_ids=ids, timeout=0.1),
    )
    for_one = await under_way(
        store.wait_for_rollouts(rollout_ids=[first], timeout=TIMEOUT_S),
        store.wait_for_rollouts(rollout_ids=[first], timeout=0.1),
    )
    await store.update_rollout(first, status="succeeded")
    await for_one  # whoever was to be told of it has been
    assert not waiting.done()
    await store.update_rollout(second, status="succeeded")
    assert [rollout.rollout_id for rollout in await waiting] == ids[1:3]


@pytest.mark.parametrize(
    "wrong", [{"count": 3}, {"count": 0}, {"share": 0.0}, {"share": 1.1}, {"count": 1, "share": 1}]
)
async def test_wait_for_rollouts_refuses_what_means_nothing(store: LightningStore, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"count|share"):
        await store.wait_for_rollouts(rollout_ids=["a", "b"], timeout=0, **wrong)
