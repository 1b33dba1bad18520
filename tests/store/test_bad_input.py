"""What no caller should say: an answer each, and nothing changed."""

from __future__ import annotations

from typing import Any

import pytest

from lightstream.schemas.errors import NotFoundError, StoreError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import EnqueueRolloutRequest, RolloutConfig

from .support import begun, span_of, unique


@pytest.mark.parametrize("rollout_id", ["a/b c", "é☃/%2F?x#y", "'; --", "..", " ", "x" * 256])
async def test_ids_may_be_any_text(store: LightningStore, rollout_id: str) -> None:
    rollout_id = (unique() + rollout_id)[-256:]
    made = await begun(store, rollout_id=rollout_id)
    await store.add_span(span_of(made))
    await store.update_attempt(rollout_id, made.attempt.attempt_id, status="succeeded")
    found = await store.get_rollout_by_id(rollout_id)
    assert found is not None
    assert (found.rollout_id, found.status) == (rollout_id, "succeeded")
    assert len(await store.query_spans(rollout_id, made.attempt.attempt_id)) == 1


@pytest.mark.parametrize("rollout_id", ["", "x" * 257, "\ud800"])
async def test_ids_that_cannot_be(store: LightningStore, rollout_id: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # what it says is up to the store
        await store.enqueue_rollout(1, rollout_id=rollout_id)


@pytest.mark.parametrize("task", [object(), {"deep": object()}, "\ud800"])
async def test_tasks_that_json_cannot_say(store: LightningStore, task: Any) -> None:
    rollout_id = unique()
    with pytest.raises(StoreError, match="input"):
        await store.enqueue_rollout(task, rollout_id=rollout_id)
    assert await store.get_rollout_by_id(rollout_id) is None


async def test_models_become_what_json_says_of_them(store: LightningStore) -> None:
    made = await store.enqueue_rollout(EnqueueRolloutRequest(input=(1, 2), mode="val"))
    assert made.input["input"] == [1, 2]


async def test_ten_megabytes_of_input(store: LightningStore) -> None:
    text = "é" * 5_000_000
    made = await store.enqueue_rollout(text)
    found = await store.get_rollout_by_id(made.rollout_id)
    assert found is not None
    assert found.input == text


async def test_more_input_than_a_record_holds(store: LightningStore) -> None:
    rollout_id = unique()
    with pytest.raises(ValueError, match="bytes"):
        await store.enqueue_rollout("x" * 33 * 1024 * 1024, rollout_id=rollout_id)
    assert await store.get_rollout_by_id(rollout_id) is None


@pytest.mark.parametrize("field", ["mode", "config", "metadata"])
async def test_requests_of_a_wrong_type(store: LightningStore, field: str) -> None:
    rollout_id = unique()
    wrong: dict[str, Any] = {field: "wrong"}
    with pytest.raises(ValueError, match=field):
        await store.enqueue_rollout(1, rollout_id=rollout_id, **wrong)
    with pytest.raises(ValueError, match=field):
        await store.start_rollout(1, rollout_id=rollout_id, **wrong)
    assert await store.get_rollout_by_id(rollout_id) is None


async def test_more_attempts_than_a_rollout_can_have(store: LightningStore) -> None:
    rollout_id = unique()
    with pytest.raises(StoreError, match="max_attempts is 5000") as raised:
        await store.enqueue_rollout(1, rollout_id=rollout_id, config=RolloutConfig(max_attempts=5000))
    assert not isinstance(raised.value, NotFoundError), "it is not that something does not exist"
    assert await store.get_rollout_by_id(rollout_id) is None


async def test_one_bad_request_of_many_enqueues_none(store: LightningStore) -> None:
    rollout_id = unique()
    requests = [EnqueueRolloutRequest(input=1, rollout_id=rollout_id), EnqueueRolloutRequest(input=object())]
    with pytest.raises(StoreError, match="input"):
        await store.enqueue_many_rollouts(requests)
    for bad in (
        EnqueueRolloutRequest(input=2, rollout_id="x" * 300),
        EnqueueRolloutRequest(input=2, config=RolloutConfig(max_attempts=10**6)),
    ):
        with pytest.raises(StoreError):
            await store.enqueue_many_rollouts([requests[0], bad])
    assert await store.get_rollout_by_id(rollout_id) is None


@pytest.mark.parametrize("query", [{"limit": -2}, {"offset": -1}, {"sort_by": "attributes"}, {"name": 3}])
async def test_queries_that_mean_nothing(store: LightningStore, query: dict[str, Any]) -> None:
    made = await begun(store)
    with pytest.raises(ValueError, match=next(iter(query))):
        await store.query_spans(made.rollout_id, **query)
