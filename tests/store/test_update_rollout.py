"""``update_rollout`` and ``cancel_rollout``."""

from __future__ import annotations

from typing import Any

import pytest

from lightstream.schemas.errors import StoreError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import AttemptedRollout, RolloutConfig

from .support import begun, span_of, taken


async def test_update_rollout_replaces_what_is_given(store: LightningStore) -> None:
    made = await store.enqueue_rollout({"a": 1}, mode="train", metadata={"old": 1}, resources_id="r1")
    config = RolloutConfig(max_attempts=4)
    after = await store.update_rollout(
        made.rollout_id, input=None, mode="val", resources_id=None, config=config, metadata={"new": 2}
    )
    assert (after.input, after.mode, after.resources_id) == (None, "val", None)
    assert (after.config, after.metadata, after.status) == (config, {"new": 2}, "queuing")
    assert await store.get_rollout_by_id(made.rollout_id) == after


async def test_update_rollout_leaves_what_is_not_given(store: LightningStore) -> None:
    made = await store.enqueue_rollout({"a": 1}, mode="train", metadata={"m": 1}, resources_id="r1")
    assert await store.update_rollout(made.rollout_id) == made
    after = await store.update_rollout(made.rollout_id, metadata=None)
    assert (after.metadata, after.input, after.mode, after.resources_id) == (None, {"a": 1}, "train", "r1")


@pytest.mark.parametrize("status", ["succeeded", "failed", "cancelled"])
async def test_update_rollout_ends_it(store: LightningStore, status: Any) -> None:
    made = await store.enqueue_rollout(1)
    after = await store.update_rollout(made.rollout_id, status=status)
    assert after.status == status
    assert after.end_time is not None
    assert await store.dequeue_rollout() is None
    (ended,) = await store.wait_for_rollouts(rollout_ids=[made.rollout_id], timeout=0)
    assert ended.status == status


@pytest.mark.parametrize("status", ["queuing", "requeuing"])
async def test_update_rollout_queues_it_once(store: LightningStore, status: Any) -> None:
    await store.enqueue_rollout(1)
    first = await taken(store)
    await store.update_rollout(first.rollout_id, status=status)
    await store.update_rollout(first.rollout_id, status=status)
    again = await taken(store)
    assert (again.rollout_id, again.attempt.sequence_id) == (first.rollout_id, 2)
    assert await store.dequeue_rollout() is None


@pytest.mark.parametrize("status", ["queuing", "requeuing"])
async def test_update_rollout_queues_it_and_its_attempt_may_still_go_on(store: LightningStore, status: Any) -> None:
    first = await begun(store)
    assert (await store.update_rollout(first.rollout_id, status=status)).status == status
    await store.add_span(span_of(first))
    found = await store.get_rollout_by_id(first.rollout_id)
    assert isinstance(found, AttemptedRollout)
    assert (found.status, found.attempt.status, found.attempt.sequence_id) == ("running", "running", 1)
    assert await store.dequeue_rollout() is None


@pytest.mark.parametrize("status", ["queuing", "requeuing"])
@pytest.mark.parametrize("end", ["succeeded", "failed"])
async def test_update_rollout_queues_it_and_its_attempt_may_still_end_it(
    store: LightningStore, status: Any, end: Any
) -> None:
    first = await begun(store)
    await store.update_rollout(first.rollout_id, status=status)
    await store.update_attempt(first.rollout_id, "latest", status=end)
    found = await store.get_rollout_by_id(first.rollout_id)
    assert found is not None
    assert (found.status, found.end_time is not None) == (end, True)
    assert await store.dequeue_rollout() is None


async def test_update_rollout_queues_it_and_the_next_attempt_takes_the_place_of_the_last(store: LightningStore) -> None:
    first = await begun(store)
    await store.add_span(span_of(first))
    await store.update_rollout(first.rollout_id, status="requeuing")
    second = await taken(store)
    await store.add_span(span_of(first, sequence_id=2))
    await store.update_attempt(first.rollout_id, first.attempt.attempt_id, status="failed")
    found = await store.get_rollout_by_id(first.rollout_id)
    assert isinstance(found, AttemptedRollout)
    assert (found.status, found.attempt.attempt_id) == ("preparing", second.attempt.attempt_id)


async def test_update_rollout_of_a_waiting_one_does_not_queue_it_again(store: LightningStore) -> None:
    made = await store.enqueue_rollout(1)
    assert (await store.update_rollout(made.rollout_id, status="requeuing")).status == "requeuing"
    await taken(store)
    assert await store.dequeue_rollout() is None


@pytest.mark.parametrize("end", ["succeeded", "failed", "cancelled"])
@pytest.mark.parametrize("status", ["queuing", "requeuing"])
async def test_update_rollout_puts_a_finished_one_back_into_the_queue(
    store: LightningStore, status: Any, end: Any
) -> None:
    first = await begun(store)
    await store.add_span(span_of(first))
    await store.update_rollout(first.rollout_id, status=end)
    back = await store.update_rollout(first.rollout_id, status=status)
    assert (back.status, back.end_time) == (status, None)
    assert await store.wait_for_rollouts(rollout_ids=[first.rollout_id], timeout=0) == []
    second = await taken(store)
    assert (second.rollout_id, second.attempt.sequence_id) == (first.rollout_id, 2)
    await store.update_attempt(first.rollout_id, first.attempt.attempt_id, status="failed")
    assert await store.dequeue_rollout() is None
    await store.update_attempt(first.rollout_id, "latest", status="succeeded")
    (ended,) = await store.wait_for_rollouts(rollout_ids=[first.rollout_id], timeout=60)
    assert (ended.status, ended.end_time is not None) == ("succeeded", True)
    attempts = await store.query_attempts(first.rollout_id)
    assert [attempt.sequence_id for attempt in attempts] == [1, 2]


@pytest.mark.parametrize("status", ["running", "cancelled", "succeeded"])
async def test_update_rollout_may_ask_that_an_attempt_is_open(store: LightningStore, status: Any) -> None:
    first = await begun(store)
    await store.update_rollout(first.rollout_id, status=status)
    same = await store.update_rollout(
        first.rollout_id, status="requeuing", metadata={"k": 1}, if_attempt=first.attempt.attempt_id
    )
    if status == "running":
        assert (same.status, same.metadata) == ("requeuing", {"k": 1})
        await taken(store)
        same = await store.update_rollout(first.rollout_id, mode="val", if_attempt=first.attempt.attempt_id)
        assert (same.status, same.mode) == ("preparing", None), "another attempt has taken its place"
    else:
        assert (same.status, same.metadata) == (status, {}), "nothing is changed, and nothing is revived"
        assert await store.dequeue_rollout() is None
    with pytest.raises(StoreError, match="if_attempt"):
        await store.update_rollout(first.rollout_id, mode="val", if_attempt="")


async def test_update_rollout_puts_one_back_that_ended_before_any_attempt(store: LightningStore) -> None:
    made = await store.enqueue_rollout(1)
    await store.cancel_rollout(made.rollout_id)
    await store.update_rollout(made.rollout_id, status="requeuing")
    await store.cancel_rollout(made.rollout_id)
    await store.update_rollout(made.rollout_id, status="requeuing")
    again = await taken(store)
    assert (again.rollout_id, again.attempt.sequence_id) == (made.rollout_id, 1)


@pytest.mark.parametrize("last", ["succeeded", "failed", "cancelled"])
@pytest.mark.parametrize("status", ["preparing", "running", "succeeded", "failed", "cancelled"])
async def test_update_rollout_cannot_move_a_finished_one(store: LightningStore, last: Any, status: Any) -> None:
    made = await begun(store)
    before = await store.update_rollout(made.rollout_id, status=last)
    if status == last:
        assert await store.update_rollout(made.rollout_id, status=status) == before
    else:
        with pytest.raises(ValueError, match=f"already {last}"):
            await store.update_rollout(made.rollout_id, status=status)
    assert await store.get_rollout_by_id(made.rollout_id) == before
    assert await store.dequeue_rollout() is None


async def test_update_rollout_may_still_note_things_about_a_finished_one(store: LightningStore) -> None:
    made = await begun(store)
    before = await store.update_rollout(made.rollout_id, status="succeeded")
    after = await store.update_rollout(made.rollout_id, metadata={"checked": True})
    assert after == before.model_copy(update={"metadata": {"checked": True}})


async def test_update_rollout_of_an_unknown_one(store: LightningStore) -> None:
    with pytest.raises(ValueError, match=r"^Rollout nonexistent not found$"):
        await store.update_rollout("nonexistent", status="failed")
    assert await store.get_rollout_by_id("nonexistent") is None


@pytest.mark.parametrize(
    "change",
    [{"status": "done"}, {"status": None}, {"mode": "play"}, {"config": {"max_attempts": 0}}, {"config": None}],
)
async def test_update_rollout_with_what_no_rollout_can_have(store: LightningStore, change: dict[str, Any]) -> None:
    made = await begun(store)
    with pytest.raises(ValueError):  # noqa: PT011  # what it says is up to the store
        await store.update_rollout(made.rollout_id, **change)
    assert await store.get_rollout_by_id(made.rollout_id) == made


async def test_cancel_rollout_ends_a_running_attempt_too(store: LightningStore) -> None:
    made = await begun(store)
    await store.add_span(span_of(made))
    after = await store.cancel_rollout(made.rollout_id, "not needed")
    assert isinstance(after, AttemptedRollout)
    assert (after.status, after.attempt.status, after.attempt.error_message) == ("cancelled", "failed", "not needed")
    late = await store.update_attempt(made.rollout_id, "latest", status="succeeded")
    assert late.status == "failed"
    assert await store.get_rollout_by_id(made.rollout_id) == after


async def test_cancel_rollout_of_a_finished_one_changes_nothing(store: LightningStore) -> None:
    made = await begun(store)
    before = await store.update_rollout(made.rollout_id, status="succeeded")
    assert await store.cancel_rollout(made.rollout_id) == before


async def test_cancel_rollout_of_an_unknown_one(store: LightningStore) -> None:
    with pytest.raises(ValueError, match=r"^Rollout nonexistent not found$"):
        await store.cancel_rollout("nonexistent")
