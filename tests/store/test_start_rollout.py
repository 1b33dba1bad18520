"""``start_rollout`` and ``start_attempt``: attempts past the queue."""

from __future__ import annotations

import time

import pytest

from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import AttemptedRollout, PromptTemplate, RolloutConfig

from .support import begun, span_of, taken, unique


async def test_start_rollout_prepares_a_rollout_and_its_first_attempt(store: LightningStore) -> None:
    before = time.time()
    config = RolloutConfig(max_attempts=3, retry_condition=["failed"])
    made = await store.start_rollout({"q": [1, 2]}, "val", None, config, {"k": "v"})
    assert isinstance(made, AttemptedRollout)
    assert (made.status, made.mode, made.input, made.metadata) == ("preparing", "val", {"q": [1, 2]}, {"k": "v"})
    assert (made.attempt.status, made.attempt.sequence_id, made.attempt.rollout_id) == ("preparing", 1, made.rollout_id)
    assert made.config == config
    assert before <= made.start_time <= time.time()
    assert made.end_time is None
    assert await store.get_rollout_by_id(made.rollout_id) == made


async def test_start_rollout_does_not_queue(store: LightningStore) -> None:
    await begun(store)
    assert await store.dequeue_rollout() is None


async def test_start_rollout_keeps_no_reference_to_its_arguments(store: LightningStore) -> None:
    config, metadata, task = RolloutConfig(), {"k": [1]}, {"n": 1}
    made = await store.start_rollout(task, config=config, metadata=metadata)
    config.max_attempts, task["n"] = 9, 2
    metadata["k"].append(2)
    found = await store.get_rollout_by_id(made.rollout_id)
    assert found is not None
    assert (found.config.max_attempts, found.metadata, found.input) == (1, {"k": [1]}, {"n": 1})


async def test_start_rollout_takes_the_latest_resources(store: LightningStore) -> None:
    update = await store.add_resources({"prompt": PromptTemplate(template="{x}")})
    assert (await begun(store)).resources_id == update.resources_id
    assert (await begun(store, resources_id="others")).resources_id == "others"


async def test_start_rollout_names_its_worker(store: LightningStore) -> None:
    name = unique("worker")
    made = await begun(store, worker_id=name)
    assert made.attempt.worker_id == name
    worker = await store.get_worker_by_id(name)
    assert worker is not None
    assert (worker.status, worker.current_rollout_id) == ("busy", made.rollout_id)
    assert worker.current_attempt_id == made.attempt.attempt_id
    assert worker.last_busy_time is not None


async def test_start_rollout_with_an_id_that_exists_is_refused(store: LightningStore) -> None:
    rollout_id = unique("ro")
    await begun(store, rollout_id=rollout_id)
    with pytest.raises(ValueError, match="exists already"):
        await begun(store, rollout_id=rollout_id)


async def test_start_attempt_numbers_attempts_on(store: LightningStore) -> None:
    first = await begun(store)
    second = await store.start_attempt(first.rollout_id, worker_id="w")
    third = await store.start_attempt(first.rollout_id)
    assert [a.attempt.sequence_id for a in (first, second, third)] == [1, 2, 3]
    assert (third.status, third.attempt.status, second.attempt.worker_id) == ("preparing", "preparing", "w")
    assert len({a.attempt.attempt_id for a in (first, second, third)}) == 3
    latest = await store.get_latest_attempt(first.rollout_id)
    assert latest == third.attempt


async def test_start_attempt_takes_a_rollout_out_of_the_queue(store: LightningStore) -> None:
    asked = await store.enqueue_rollout(1)
    made = await store.start_attempt(asked.rollout_id)
    assert made.attempt.sequence_id == 1
    assert await store.dequeue_rollout() is None


async def test_start_attempt_leaves_only_the_new_one_in_charge(store: LightningStore) -> None:
    first = await begun(store)
    second = await store.start_attempt(first.rollout_id)
    ended = await store.update_attempt(first.rollout_id, first.attempt.attempt_id, status="succeeded")
    assert ended.status == "succeeded"
    found = await store.get_rollout_by_id(first.rollout_id)
    assert found is not None
    assert found.status == "preparing"
    await store.add_span(span_of(second))
    await store.update_attempt(first.rollout_id, second.attempt.attempt_id, status="failed")
    found = await store.get_rollout_by_id(first.rollout_id)
    assert found is not None
    assert found.status == "failed"


async def test_start_attempt_of_an_unknown_rollout(store: LightningStore) -> None:
    with pytest.raises(ValueError, match=r"^Rollout nonexistent not found$"):
        await store.start_attempt("nonexistent")


async def test_start_attempt_of_a_finished_rollout_opens_it_again(store: LightningStore) -> None:
    await store.enqueue_rollout(1)
    rollout = await taken(store)
    await store.update_attempt(rollout.rollout_id, "latest", status="succeeded")
    again = await store.start_attempt(rollout.rollout_id)
    assert (again.status, again.attempt.sequence_id) == ("preparing", 2)
    assert len(await store.query_attempts(rollout.rollout_id)) == 2
