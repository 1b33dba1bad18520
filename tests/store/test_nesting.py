"""Values nested deeply: kept up to a limit that all stores share, beyond it refused before anything is written."""

from __future__ import annotations

from typing import Any

import pytest

from lightstream.schemas.errors import StoreError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import LLM, EnqueueRolloutRequest
from lightstream.store_views.stores.json_text import JSON_DEPTH_MAX

from .support import begun, span_of, taken, unique

LIMIT = f"more than {JSON_DEPTH_MAX} deep"
TOO_DEEP = [JSON_DEPTH_MAX + 1, 260, 2_000]


def nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


async def test_what_is_just_allowed_is_read_from_everywhere(store: LightningStore) -> None:
    deepest, below = nested(JSON_DEPTH_MAX), {"x": nested(JSON_DEPTH_MAX - 1)}
    made = await store.enqueue_rollout(deepest, metadata=below)
    (got,) = await store.dequeue_many_rollouts(limit=1)
    await store.update_attempt(made.rollout_id, "latest", metadata=below)
    await store.add_span(span_of(got, attributes={"x": nested(JSON_DEPTH_MAX - 2)}))
    (listed,) = await store.query_rollouts(rollout_id_in=[made.rollout_id])
    assert (got.input, got.metadata, listed.input) == (deepest, below, deepest)
    (attempt,) = await store.query_attempts(made.rollout_id)
    assert attempt.metadata == below
    (span,) = await store.query_spans(made.rollout_id)
    assert span.attributes == {"x": nested(JSON_DEPTH_MAX - 2)}


@pytest.mark.parametrize("depth", TOO_DEEP)
async def test_a_rollout_is_refused_before_it_is_written(store: LightningStore, depth: int) -> None:
    deep, rollout_id = nested(depth), unique()
    with pytest.raises(StoreError, match=f"input .*{LIMIT}"):
        await store.enqueue_rollout(deep, rollout_id=rollout_id)
    with pytest.raises(StoreError, match=f"metadata .*{LIMIT}"):
        await store.start_rollout(1, metadata={"x": deep}, rollout_id=rollout_id)
    requests = [EnqueueRolloutRequest(input=value, rollout_id=rollout_id) for value in (1, deep)]
    with pytest.raises(StoreError, match=LIMIT):
        await store.enqueue_many_rollouts(requests)
    assert await store.get_rollout_by_id(rollout_id) is None


@pytest.mark.parametrize("depth", TOO_DEEP)
async def test_a_change_is_refused_and_nothing_changes(store: LightningStore, depth: int) -> None:
    deep, rollout = nested(depth), await begun(store)
    with pytest.raises(StoreError, match=f"input .*{LIMIT}"):
        await store.update_rollout(rollout.rollout_id, input=deep, status="succeeded")
    with pytest.raises(StoreError, match=f"metadata .*{LIMIT}"):
        await store.update_attempt(rollout.rollout_id, "latest", "succeeded", metadata={"x": deep})
    assert await store.get_rollout_by_id(rollout.rollout_id) == rollout


@pytest.mark.parametrize("depth", TOO_DEEP)
async def test_spans_resources_and_workers(store: LightningStore, depth: int) -> None:
    deep, rollout = nested(depth), await begun(store)
    with pytest.raises(StoreError, match=LIMIT):
        await store.add_span(span_of(rollout, attributes={"x": deep}))
    with pytest.raises(StoreError, match=LIMIT):
        await store.add_resources({"llm": LLM(endpoint="e", model="m", sampling_parameters={"x": deep})})
    with pytest.raises(StoreError, match=f"heartbeat_stats .*{LIMIT}"):
        await store.update_worker("w", {"x": deep})
    assert list(await store.query_spans(rollout.rollout_id)) == []


async def test_one_that_is_refused_takes_no_other_with_it(store: LightningStore) -> None:
    with pytest.raises(StoreError):
        await store.enqueue_rollout(nested(300))
    made = await store.enqueue_rollout("fine")
    assert (await taken(store)).rollout_id == made.rollout_id
