"""``update_attempt``, ``query_attempts``, ``get_latest_attempt``."""

from __future__ import annotations

from typing import Any

import pytest

from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import RolloutConfig

from .support import begun, taken, unique


async def status_of(store: LightningStore, rollout_id: str) -> str:
    rollout = await store.get_rollout_by_id(rollout_id)
    assert rollout is not None
    return rollout.status


@pytest.mark.parametrize(
    ("status", "then"),
    [
        ("running", "running"),
        ("preparing", "preparing"),
        ("succeeded", "succeeded"),
        ("failed", "failed"),
        ("timeout", "failed"),
        ("unresponsive", "failed"),
    ],
)
async def test_update_attempt_decides_about_its_rollout(store: LightningStore, status: Any, then: str) -> None:
    made = await begun(store)
    attempt = await store.update_attempt(made.rollout_id, made.attempt.attempt_id, status=status)
    assert attempt.status == status
    assert (attempt.end_time is None) == (status in ("running", "preparing"))
    assert await status_of(store, made.rollout_id) == then
    assert await store.get_latest_attempt(made.rollout_id) == attempt


@pytest.mark.parametrize("status", ["failed", "timeout", "unresponsive"])
async def test_update_attempt_requeues_what_may_be_retried(store: LightningStore, status: Any) -> None:
    config = RolloutConfig(max_attempts=2, retry_condition=[status])
    await store.enqueue_rollout(1, config=config)
    first = await taken(store)
    await store.update_attempt(first.rollout_id, "latest", status=status)
    assert await status_of(store, first.rollout_id) == "requeuing"
    second = await taken(store)
    assert second.attempt.sequence_id == 2
    await store.update_attempt(first.rollout_id, "latest", status=status)
    assert await status_of(store, first.rollout_id) == "failed"
    assert await store.dequeue_rollout() is None


async def test_update_attempt_does_not_retry_for_other_reasons(store: LightningStore) -> None:
    made = await begun(store, config=RolloutConfig(max_attempts=3, retry_condition=["timeout"]))
    await store.update_attempt(made.rollout_id, "latest", status="failed")
    assert await status_of(store, made.rollout_id) == "failed"


async def test_update_attempt_replaces_what_is_given(store: LightningStore) -> None:
    made = await begun(store, worker_id=unique("w"))
    name = unique("w")
    attempt = await store.update_attempt(
        made.rollout_id, "latest", worker_id=name, last_heartbeat_time=1_700_000_000.5, metadata={"m": [1]}
    )
    assert (attempt.worker_id, attempt.last_heartbeat_time, attempt.metadata) == (name, 1_700_000_000.5, {"m": [1]})
    assert attempt.status == "preparing"
    cleared = await store.update_attempt(made.rollout_id, "latest", metadata=None)
    assert cleared == attempt.model_copy(update={"metadata": None})


async def test_update_attempt_keeps_why_it_failed(store: LightningStore) -> None:
    made = await begun(store)
    await store.update_attempt(made.rollout_id, "latest", "failed", error_type="SystemExit", error_message="3")
    attempt = await store.get_latest_attempt(made.rollout_id)
    assert attempt is not None
    assert (attempt.status, attempt.error_type, attempt.error_message) == ("failed", "SystemExit", "3")


@pytest.mark.parametrize("first", ["succeeded", "failed", "timeout"])
@pytest.mark.parametrize("late", ["running", "succeeded", "failed", "timeout", "unresponsive"])
async def test_update_attempt_cannot_move_what_is_over(store: LightningStore, first: Any, late: Any) -> None:
    made = await begun(store)
    before = await store.update_attempt(made.rollout_id, "latest", status=first)
    rollout = await store.get_rollout_by_id(made.rollout_id)
    assert await store.update_attempt(made.rollout_id, "latest", status=late) == before
    assert await store.get_rollout_by_id(made.rollout_id) == rollout


async def test_update_attempt_too_late_does_not_stop_a_retry(store: LightningStore) -> None:
    await store.enqueue_rollout(1, config=RolloutConfig(max_attempts=2, retry_condition=["timeout"]))
    first = await taken(store)
    await store.update_attempt(first.rollout_id, "latest", status="timeout")
    await store.update_attempt(first.rollout_id, first.attempt.attempt_id, status="succeeded")
    assert await status_of(store, first.rollout_id) == "requeuing"
    assert (await taken(store)).attempt.sequence_id == 2


async def test_update_attempt_of_what_does_not_exist(store: LightningStore) -> None:
    with pytest.raises(ValueError, match=r"^Rollout nonexistent not found$"):
        await store.update_attempt("nonexistent", "latest", status="failed")
    waiting = await store.enqueue_rollout(1)
    with pytest.raises(ValueError, match=f"^No attempts found for rollout {waiting.rollout_id}$"):
        await store.update_attempt(waiting.rollout_id, "latest", status="failed")
    made = await begun(store)
    with pytest.raises(ValueError, match=f"^Attempt nonexistent not found for rollout {made.rollout_id}$"):
        await store.update_attempt(made.rollout_id, "nonexistent", status="failed")
    assert await store.get_rollout_by_id(made.rollout_id) == made


@pytest.mark.parametrize("change", [{"status": "queuing"}, {"status": "cancelled"}, {"status": 3}, {"worker_id": 3}])
async def test_update_attempt_with_what_no_attempt_can_have(store: LightningStore, change: dict[str, Any]) -> None:
    made = await begun(store)
    with pytest.raises(ValueError):  # noqa: PT011  # what it says is up to the store
        await store.update_attempt(made.rollout_id, "latest", **change)
    assert await store.get_rollout_by_id(made.rollout_id) == made


async def test_query_attempts_in_order_and_pages(store: LightningStore) -> None:
    made = await begun(store)
    for _ in range(3):
        await store.start_attempt(made.rollout_id)
    attempts = await store.query_attempts(made.rollout_id)
    assert [a.sequence_id for a in attempts] == [1, 2, 3, 4]
    page = await store.query_attempts(made.rollout_id, sort_order="desc", limit=2, offset=1)
    assert [a.sequence_id for a in page] == [3, 2]
    assert (page.total, page.limit, page.offset) == (4, 2, 1)


async def test_query_attempts_of_what_has_none(store: LightningStore) -> None:
    asked = await store.enqueue_rollout(1)
    for rollout_id in (asked.rollout_id, "nonexistent"):
        assert list(await store.query_attempts(rollout_id)) == []
        assert await store.get_latest_attempt(rollout_id) is None


async def test_a_rollout_that_is_over_may_get_another_attempt(store: LightningStore) -> None:
    rollout = await store.start_rollout("task")
    await store.update_attempt(rollout.rollout_id, "latest", status="failed")
    again = await store.start_attempt(rollout.rollout_id)
    assert (again.status, again.attempt.sequence_id, again.end_time) == ("preparing", 2, None)
    await store.update_attempt(rollout.rollout_id, again.attempt.attempt_id, status="succeeded")
    attempts = await store.query_attempts(rollout.rollout_id)
    assert [attempt.status for attempt in attempts] == ["failed", "succeeded"]
    [ended] = await store.wait_for_rollouts(rollout_ids=[rollout.rollout_id])
    assert ended.status == "succeeded"
