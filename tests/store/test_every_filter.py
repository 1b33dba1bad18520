"""Each declared filter of each query, on every store, beside a second definition of what it means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from pydantic import BaseModel

from lightstream.schemas.interfaces import (
    AttemptFilters,
    LightningStore,
    ResourcesFilters,
    RolloutFilters,
    SpanFilters,
    WorkerFilters,
    arguments_of,
)
from lightstream.schemas.types import LLM, RolloutMode
from lightstream.store_views.stores.http._routes import QueryRollouts, QuerySpans, QueryWorkers
from lightstream.store_views.stores.queries import AttemptQuery, Query, ResourcesQuery

from .support import begun, span_of, unique

DECLARED: Mapping[str, type] = {
    "attempts": AttemptFilters,
    "resources": ResourcesFilters,
    "rollouts": RolloutFilters,
    "spans": SpanFilters,
    "workers": WorkerFilters,
}

KEYS = {"resources": "resources_id", "rollouts": "rollout_id", "spans": "span_id", "workers": "worker_id"}

NO_FILTERS = {"sort_by", "sort_order", "limit", "offset", "filter_logic"}

FILTERS = [(kind, name) for kind, one in DECLARED.items() for name in arguments_of(one) if name not in NO_FILTERS]

FORMS: Mapping[str, type[Query]] = {
    "attempts": AttemptQuery,
    "resources": ResourcesQuery,
    "rollouts": QueryRollouts,
    "spans": QuerySpans,
    "workers": QueryWorkers,
}


async def rollouts_that_differ(store: LightningStore) -> None:
    for number in range(3):
        group: dict[str, Any] = {"group_id": unique("group"), "group_size": number + 2}
        mode: RolloutMode = "train" if number % 2 else "val"
        await store.enqueue_rollout(
            number, mode, rollout_id=unique(f"filtered-{number}"), run_id=unique("run"), **group
        )
    last = await begun(store)
    await store.cancel_rollout(last.rollout_id)


async def spans_that_differ(store: LightningStore) -> str:
    attempt = await begun(store)
    parent = span_of(attempt, sequence_id=1)
    children = [span_of(attempt, sequence_id=number) for number in (2, 3)]
    others = [
        child.model_copy(update={"name": unique("name"), "parent_id": span_id})
        for child, span_id in zip(children, (parent.span_id, children[0].span_id), strict=True)
    ]
    await store.add_many_spans([parent, *others])
    await store.add_many_spans([span_of(await store.start_attempt(attempt.rollout_id))])
    return attempt.rollout_id


async def workers_that_differ(store: LightningStore) -> None:
    await store.update_worker(unique("idle"))
    await begun(store, worker_id=unique("busy"))


async def asked(store: LightningStore, kind: str, rollout_id: str, **query: Any) -> Sequence[Any]:
    of_rollout = [rollout_id] if kind in ("attempts", "spans") else []
    return list(await getattr(store, f"query_{kind}")(*of_rollout, **query))


def value_for(name: str, items: Sequence[BaseModel]) -> Any:
    """A value of the filter that some of the items fit, and some do not."""
    if name in ("started_after", "started_before"):
        times = sorted(item.start_time for item in items)  # type: ignore[attr-defined]  # items that have one
        return times[len(times) // 2]
    field, ending = field_of(name)
    value = next(found for item in reversed(items) if (found := getattr(item, field)))
    return {"in": [value, "of-nothing"], "contains": value[1:], "prefix": value[:-1]}.get(ending, value)


def field_of(name: str) -> tuple[str, str]:
    renamed = {"rollout_ids": "rollout_id_in", "status": "status_in"}.get(name, name)
    field, _, ending = renamed.rpartition("_")
    return (field, ending) if ending in ("in", "contains", "prefix") else (renamed, "")


def fits(name: str, value: Any, item: BaseModel) -> bool:
    if name == "started_after":
        return bool(item.start_time >= value)  # type: ignore[attr-defined]  # as above
    if name == "started_before":
        return bool(item.start_time < value)  # type: ignore[attr-defined]  # as above
    field, ending = field_of(name)
    found = getattr(item, field)
    if found is None:
        return False
    if ending == "in":
        return found in value
    if ending == "contains":
        return value in found
    return str(found).startswith(value) if ending == "prefix" else bool(found == value)


@pytest.mark.parametrize(("kind", "name"), FILTERS)
async def test_a_filter_lets_through_what_it_says(store: LightningStore, kind: str, name: str) -> None:
    rollout_id = ""
    if kind == "rollouts":
        await rollouts_that_differ(store)
    elif kind == "spans":
        rollout_id = await spans_that_differ(store)
    elif kind == "resources":
        for number in range(2):
            await store.update_resources(unique(f"filtered-{number}"), {"llm": LLM(endpoint="http://x", model="m")})
    elif kind == "workers":
        await workers_that_differ(store)
    items = await asked(store, kind, rollout_id)
    value = value_for(name, items)
    expected = [item for item in items if fits(name, value, item)]
    assert 0 < len(expected) < len(items), "the filter has something to do"
    found = await asked(store, kind, rollout_id, **{name: value})
    assert [getattr(item, KEYS[kind]) for item in found] == [getattr(item, KEYS[kind]) for item in expected]


@pytest.mark.parametrize("kind", DECLARED)
def test_a_request_takes_each_argument(kind: str) -> None:
    assert arguments_of(DECLARED[kind]).keys() <= FORMS[kind].model_fields.keys()


@pytest.mark.parametrize("kind", DECLARED)
async def test_an_argument_that_is_not_declared_is_refused(store: LightningStore, kind: str) -> None:
    with pytest.raises(TypeError, match="takes no no_such_filter"):
        await asked(store, kind, "ro", no_such_filter="x")
