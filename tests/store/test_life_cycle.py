"""Deadlines that fire by themselves, retries, and what a restart of nobody can undo."""

from __future__ import annotations

from typing import Any

import pytest

from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import RolloutConfig

from .support import begun, reached, taken


async def test_an_attempt_over_its_deadline_times_out(store: LightningStore) -> None:
    made = await begun(store, config=RolloutConfig(timeout_seconds=0.2))
    rollout = await reached(store, made.rollout_id, "failed")
    assert rollout.end_time is not None
    attempt = await store.get_latest_attempt(made.rollout_id)
    assert attempt is not None
    assert (attempt.status, attempt.error_type) == ("timeout", "Timeout")


async def test_a_silent_attempt_is_unresponsive(store: LightningStore) -> None:
    made = await begun(store, config=RolloutConfig(unresponsive_seconds=0.2))
    await reached(store, made.rollout_id, "failed")
    attempt = await store.get_latest_attempt(made.rollout_id)
    assert attempt is not None
    assert attempt.status == "unresponsive"


@pytest.mark.parametrize("lost", ["timeout", "unresponsive"])
async def test_a_rollout_lost_with_its_runner_is_handed_out_again(store: LightningStore, lost: Any) -> None:
    limit = {"timeout": "timeout_seconds", "unresponsive": "unresponsive_seconds"}[lost]
    config = RolloutConfig.model_validate({limit: 0.2, "max_attempts": 2, "retry_condition": [lost]})
    await store.enqueue_rollout(1, config=config)
    first = await taken(store)
    await reached(store, first.rollout_id, "requeuing")
    second = await store.dequeue_rollout("other", timeout_s=60)
    assert second is not None
    assert (second.rollout_id, second.attempt.sequence_id) == (first.rollout_id, 2)
    assert second.attempt.status == "preparing"
    await reached(store, first.rollout_id, "failed")
    assert [a.status for a in await store.query_attempts(first.rollout_id)] == [lost, lost]


async def test_retries_end_with_the_last_attempt(store: LightningStore) -> None:
    config = RolloutConfig(max_attempts=3, retry_condition=["failed"])
    asked = await store.enqueue_rollout(1, config=config)
    for number in (1, 2, 3):
        rollout = await taken(store)
        assert rollout.attempt.sequence_id == number
        await store.update_attempt(rollout.rollout_id, "latest", "failed", error_message=f"try {number}")
    attempts = await store.query_attempts(asked.rollout_id)
    assert [a.error_message for a in attempts] == ["try 1", "try 2", "try 3"]
    assert await store.dequeue_rollout() is None
    assert (await reached(store, asked.rollout_id, "failed")).end_time is not None


async def test_a_lost_attempt_that_ends_well_after_all_counts(store: LightningStore) -> None:
    made = await begun(store, config=RolloutConfig(max_attempts=2, retry_condition=["unresponsive"]))
    await store.update_attempt(made.rollout_id, "latest", status="unresponsive")
    await store.update_attempt(made.rollout_id, made.attempt.attempt_id, status="succeeded")
    await reached(store, made.rollout_id, "succeeded")
    assert await store.dequeue_rollout() is None
