"""``add_span``, ``add_many_spans``, ``add_otel_span``, ``query_spans``, ``get_next_span_sequence_id`` and its kin."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider

from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import (
    AttemptedRollout,
    Event,
    Link,
    OtelResource,
    RolloutConfig,
    SpanContext,
    TraceStatus,
)

from .support import begun, span_of, taken


async def test_add_span_keeps_all_of_it(store: LightningStore) -> None:
    made = await begun(store)
    context = SpanContext(trace_id="ab" * 16, span_id="cd" * 8, is_remote=True, trace_state={"k": "v"})
    span = span_of(
        made,
        trace_id="ab" * 16,
        span_id="ef" * 8,
        parent_id="cd" * 8,
        status=TraceStatus(status_code="ERROR", description="no"),
        events=[Event(name="e", attributes={"a": 1}, timestamp=1_700_000_000.5)],
        links=[Link(context=context, attributes={"l": "x"}), Link(context=context)],
        context=context,
        parent=context,
        resource=OtelResource(attributes={"service.name": "s", "n": 3}, schema_url="https://example.org"),
        beyond={"kept": True},
    )
    assert await store.add_span(span) == span
    assert list(await store.query_spans(made.rollout_id)) == [span]


async def test_add_span_is_a_sign_of_life(store: LightningStore) -> None:
    made = await begun(store)
    await store.add_span(span_of(made))
    found = await store.get_rollout_by_id(made.rollout_id)
    assert isinstance(found, AttemptedRollout)
    assert (found.status, found.attempt.status) == ("running", "running")
    assert found.attempt.last_heartbeat_time is not None


async def test_add_span_twice_is_one_span(store: LightningStore) -> None:
    made = await begun(store)
    span = span_of(made)
    assert await store.add_span(span) == span
    assert await store.add_span(span) is None
    (new,) = await store.add_many_spans([span, span_of(made, "other")])
    assert new.name == "other"
    assert len(await store.query_spans(made.rollout_id)) == 2


@pytest.mark.parametrize("ended", ["succeeded", "failed", "timeout"])
async def test_add_span_too_late_is_kept_and_changes_nothing(store: LightningStore, ended: Any) -> None:
    made = await begun(store, config=RolloutConfig(max_attempts=2, retry_condition=["failed", "timeout"]))
    await store.update_attempt(made.rollout_id, "latest", status=ended)
    before = await store.get_rollout_by_id(made.rollout_id)
    assert await store.add_span(span_of(made)) is not None
    assert await store.get_rollout_by_id(made.rollout_id) == before
    assert len(await store.query_spans(made.rollout_id)) == 1
    if ended != "succeeded":
        assert (await taken(store)).attempt.sequence_id == 2


async def test_add_span_revives_an_unresponsive_attempt(store: LightningStore) -> None:
    made = await begun(store, config=RolloutConfig(max_attempts=2, retry_condition=["unresponsive"]))
    await store.update_attempt(made.rollout_id, "latest", status="unresponsive")
    await store.add_span(span_of(made))
    found = await store.get_rollout_by_id(made.rollout_id)
    assert isinstance(found, AttemptedRollout)
    assert (found.status, found.attempt.status) == ("running", "running")
    assert await store.dequeue_rollout() is None, "what came back is not dispatched a second time"


async def test_add_span_does_not_revive_a_superseded_attempt(store: LightningStore) -> None:
    made = await begun(store, config=RolloutConfig(max_attempts=2, retry_condition=["unresponsive"]))
    await store.update_attempt(made.rollout_id, "latest", status="unresponsive")
    second = await taken(store)
    await store.add_span(span_of(made))
    found = await store.get_rollout_by_id(made.rollout_id)
    assert found == second
    assert (await store.query_attempts(made.rollout_id))[0].status == "unresponsive"


async def test_add_span_is_a_sign_of_life_of_an_attempt_whose_place_another_took(store: LightningStore) -> None:
    made = await begun(store)
    second = await store.start_attempt(made.rollout_id)
    await store.add_span(span_of(made))
    assert await store.get_rollout_by_id(made.rollout_id) == second, "the second decides, and was not heard of"
    first = (await store.query_attempts(made.rollout_id))[0]
    assert first.status == "running"
    assert first.last_heartbeat_time is not None


async def test_add_span_of_what_does_not_exist(store: LightningStore) -> None:
    made = await begun(store)
    span = span_of(made)
    with pytest.raises(ValueError, match=r"^Rollout nonexistent not found$"):
        await store.add_span(span.model_copy(update={"rollout_id": "nonexistent"}))
    with pytest.raises(ValueError, match=f"^Attempt nonexistent not found for rollout {made.rollout_id}$"):
        await store.add_span(span.model_copy(update={"attempt_id": "nonexistent"}))
    with pytest.raises(ValueError, match="nonexistent not found"):
        await store.add_many_spans([span, span.model_copy(update={"rollout_id": "nonexistent"})])
    assert list(await store.query_spans(made.rollout_id)) == []


async def test_add_many_spans_of_several_rollouts(store: LightningStore) -> None:
    first, second = await begun(store), await begun(store)
    spans = [span_of(rollout, f"s{i}", i) for i in range(1, 4) for rollout in (first, second)]
    assert list(await store.add_many_spans(spans)) == spans
    assert list(await store.add_many_spans([])) == []
    for rollout in (first, second):
        assert [span.name for span in await store.query_spans(rollout.rollout_id)] == ["s1", "s2", "s3"]


def ended_span() -> ReadableSpan:
    tracer = TracerProvider(resource=Resource({"service.name": "sdk"}), shutdown_on_exit=False).get_tracer("t")
    with tracer.start_as_current_span("outer"), tracer.start_as_current_span("inner", attributes={"k": [1, 2]}) as span:
        span.add_event("happened", {"x": 1})
    assert isinstance(span, ReadableSpan)
    return span


async def test_add_otel_span_converts_and_numbers(store: LightningStore) -> None:
    made, span = await begun(store), ended_span()
    kept = await store.add_otel_span(made.rollout_id, made.attempt.attempt_id, span)
    assert kept is not None
    assert (kept.name, kept.sequence_id, kept.attributes["k"]) == ("inner", 1, [1, 2])
    assert (kept.events[0].name, kept.resource.attributes["service.name"]) == ("happened", "sdk")
    assert kept.parent_id is not None
    assert kept.start_time is not None
    assert 1e9 < kept.start_time < 1e11, "seconds"
    assert list(await store.query_spans(made.rollout_id)) == [kept]
    second = await store.add_otel_span(made.rollout_id, made.attempt.attempt_id, ended_span(), sequence_id=7)
    assert second is not None
    assert second.sequence_id == 7
    assert await store.get_next_span_sequence_id(made.rollout_id, made.attempt.attempt_id) == 8
    with pytest.raises(ValueError, match=r"^Rollout nonexistent not found$"):
        await store.add_otel_span("nonexistent", "x", span)


async def test_get_next_span_sequence_id_counts_up(store: LightningStore) -> None:
    made = await begun(store)
    key = (made.rollout_id, made.attempt.attempt_id)
    assert [await store.get_next_span_sequence_id(*key) for _ in range(3)] == [1, 2, 3]
    await store.add_span(span_of(made, sequence_id=10))
    assert await store.get_next_span_sequence_id(*key) == 11
    await store.add_span(span_of(made, sequence_id=2))
    assert await store.get_next_span_sequence_id(*key) == 12
    later = await store.start_attempt(made.rollout_id)
    assert await store.get_next_span_sequence_id(made.rollout_id, later.attempt.attempt_id) == 13


async def test_get_next_span_sequence_id_gives_each_number_once(store: LightningStore) -> None:
    made = await begun(store)
    numbers = await asyncio.gather(
        *(store.get_next_span_sequence_id(made.rollout_id, made.attempt.attempt_id) for _ in range(20))
    )
    assert sorted(numbers) == list(range(1, 21))


async def test_get_many_span_sequence_ids_in_order(store: LightningStore) -> None:
    first, second = await begun(store), await begun(store)
    a, b = ((rollout.rollout_id, rollout.attempt.attempt_id) for rollout in (first, second))
    assert list(await store.get_many_span_sequence_ids([a, b, a, a, b])) == [1, 1, 2, 3, 2]
    assert list(await store.get_many_span_sequence_ids([a])) == [4]
    assert list(await store.get_many_span_sequence_ids([])) == []


async def test_get_next_span_sequence_id_of_an_unknown_rollout(store: LightningStore) -> None:
    with pytest.raises(ValueError, match=r"^Rollout nonexistent not found$"):
        await store.get_next_span_sequence_id("nonexistent", "x")


async def test_query_spans_of_one_attempt_or_all(store: LightningStore) -> None:
    first = await begun(store)
    await store.add_span(span_of(first, "one", 1))
    second = await store.start_attempt(first.rollout_id)
    await store.add_span(span_of(second, "two", 2))
    found: dict[str | None, list[str]] = {}
    for attempt_id in (None, "latest", first.attempt.attempt_id, "nonexistent"):
        found[attempt_id] = [span.name for span in await store.query_spans(first.rollout_id, attempt_id)]
    assert found == {None: ["one", "two"], "latest": ["two"], first.attempt.attempt_id: ["one"], "nonexistent": []}
    assert list(await store.query_spans("nonexistent")) == []
    assert list(await store.query_spans("nonexistent", "latest")) == []


async def test_query_spans_filters_sorts_and_pages(store: LightningStore) -> None:
    made = await begun(store)
    spans = [
        span_of(made, f"{kind}-{i}", 4 - i, trace_id=f"{i:032x}", span_id=f"{i:016x}", parent_id=f"{i % 2:016x}")
        for i, kind in enumerate(["call", "tool", "call", "tool"])
    ]
    await store.add_many_spans(spans)

    async def names(**query: Any) -> list[str]:
        return [span.name for span in await store.query_spans(made.rollout_id, **query)]

    assert await names() == ["tool-3", "call-2", "tool-1", "call-0"]
    assert await names(name="call-0") == ["call-0"]
    assert await names(name_contains="call") == ["call-2", "call-0"]
    assert await names(trace_id=f"{1:032x}") == ["tool-1"]
    assert await names(span_id_contains="03") == ["tool-3"]
    assert await names(parent_id=f"{1:016x}", name_contains="tool") == ["tool-3", "tool-1"]
    assert await names(trace_id=f"{0:032x}", name="tool-1", filter_logic="or") == ["tool-1", "call-0"]
    assert await names(sort_by="name", sort_order="desc") == ["tool-3", "tool-1", "call-2", "call-0"]
    page = await store.query_spans(made.rollout_id, limit=2, offset=1)
    assert ([span.name for span in page], page.total) == (["call-2", "tool-1"], 4)
