"""Infinity and NaN, which strict JSON cannot say: whoever writes them reads them again, from any store."""

from __future__ import annotations

import math
from typing import Any

import pytest

from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import LLM, EnqueueRolloutRequest, Event, Link, OtelResource, SpanContext

from .support import begun, span_of, taken, unique

VALUES: dict[str, Any] = {"up": math.inf, "down": [-math.inf], "none": {"deep": math.nan}, "usual": 0.5}


def shown(value: Any) -> str:
    """As text, since NaN equals nothing."""
    return repr(value)


async def test_in_the_input_and_metadata_of_a_rollout(store: LightningStore) -> None:
    made = await store.enqueue_rollout(VALUES, metadata=VALUES)
    got = await taken(store)
    started = await begun(store, metadata=VALUES)
    await store.update_rollout(started.rollout_id, input=VALUES)
    for rollout_id in (made.rollout_id, started.rollout_id):
        found = await store.get_rollout_by_id(rollout_id)
        (listed,) = await store.query_rollouts(rollout_id_in=[rollout_id])
        for rollout in (found, listed):
            assert rollout is not None
            assert shown(rollout.input) == shown(rollout.metadata) == shown(VALUES)
    assert shown((made.input, made.metadata)) == shown((got.input, got.metadata)) == shown((VALUES, VALUES))


async def test_of_many_rollouts_and_their_attempts(store: LightningStore) -> None:
    rollout_id = unique()
    request = EnqueueRolloutRequest(input=VALUES, metadata=VALUES, rollout_id=rollout_id)
    (made,) = await store.enqueue_many_rollouts([request])
    assert shown((made.input, made.metadata)) == shown((VALUES, VALUES))
    await taken(store)
    attempt = await store.update_attempt(rollout_id, "latest", "succeeded", metadata=VALUES)
    (over,) = await store.wait_for_rollouts(rollout_ids=[rollout_id], timeout=60)
    latest = await store.get_latest_attempt(rollout_id)
    assert latest is not None
    assert shown(attempt.metadata) == shown(latest.metadata) == shown(over.input) == shown(VALUES)


async def test_in_the_attributes_of_a_span(store: LightningStore) -> None:
    rollout = await begun(store)
    context = SpanContext(trace_id="1" * 32, span_id="2" * 16, is_remote=False, trace_state={})
    span = span_of(
        rollout,
        attributes=VALUES,
        events=[Event(name="e", attributes=VALUES, timestamp=1.0)],
        links=[Link(context=context, attributes=VALUES)],
        resource=OtelResource(attributes=VALUES, schema_url=""),
        extra=VALUES,
    )
    kept = await store.add_span(span)
    (found,) = await store.query_spans(rollout.rollout_id)
    for each in (kept, found):
        assert each is not None
        told = [each.attributes, each.events[0].attributes, each.links[0].attributes, each.resource.attributes]
        assert [shown(attributes) for attributes in told] == [shown(VALUES)] * 4
        assert shown(each.model_dump()["extra"]) == shown(VALUES)


async def test_in_the_sampling_parameters_of_a_model(store: LightningStore) -> None:
    stored = await store.add_resources({"llm": LLM(endpoint="e", model="m", sampling_parameters=VALUES)})
    latest = await store.get_latest_resources()
    for update in (stored, latest):
        assert update is not None
        llm = update.resources["llm"]
        assert isinstance(llm, LLM)
        assert shown(llm.sampling_parameters) == shown(VALUES)


async def test_in_what_a_worker_tells(store: LightningStore) -> None:
    worker_id = unique("w")
    told = await store.update_worker(worker_id, VALUES)
    found = await store.get_worker_by_id(worker_id)
    assert found is not None
    assert shown(told.heartbeat_stats) == shown(found.heartbeat_stats) == shown(VALUES)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
async def test_alone(store: LightningStore, value: float) -> None:
    made = await store.enqueue_rollout(value)
    assert shown((await taken(store)).input) == shown(made.input) == shown(value)
