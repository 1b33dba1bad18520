"""``query_rollouts`` and ``get_rollout_by_id``."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import AttemptedRollout, EnqueueRolloutRequest, PaginatedResult

from .support import begun, span_of, taken, unique


async def five(store: LightningStore) -> tuple[str, list[str]]:
    """Five rollouts, the first dequeued, the last cancelled: what their ids share, and what tells them apart."""
    family = unique("family/é")
    for i in range(5):
        await store.enqueue_rollout(i, mode="train" if i % 2 else "val", rollout_id=f"{family}-{i}")
    assert (await taken(store)).rollout_id == f"{family}-0"
    await store.cancel_rollout(f"{family}-4")
    return family, [f"{family}-{i}" for i in range(5)]


async def found(store: LightningStore, **query: Any) -> list[str]:
    return [rollout.rollout_id for rollout in await store.query_rollouts(**query)]


async def test_query_rollouts_by_status_and_id(store: LightningStore) -> None:
    family, ids = await five(store)
    assert await found(store, rollout_id_contains=family) == ids
    assert await found(store, rollout_id_in=[ids[3], ids[1], "nonexistent"]) == [ids[1], ids[3]]
    assert await found(store, rollout_id_contains=family, status_in=["queuing"]) == ids[1:4]
    assert await found(store, rollout_id_in=ids, status_in=["preparing", "cancelled"]) == [ids[0], ids[4]]
    assert await found(store, rollout_id_in=[]) == []
    assert await found(store, status_in=[], rollout_id_in=ids) == []
    assert await found(store, rollout_id_prefix=f"{family}-", status_in=["cancelled"]) == [ids[4]]
    assert await found(store, rollout_id_prefix=family[1:]) == []


async def test_query_rollouts_by_any_of_the_filters(store: LightningStore) -> None:
    _, ids = await five(store)
    either = await found(store, rollout_id_in=[ids[2]], rollout_id_contains=ids[4], filter_logic="or")
    assert either == [ids[2], ids[4]]


async def test_query_rollouts_by_time(store: LightningStore) -> None:
    family, ids = await five(store)
    third = await store.get_rollout_by_id(ids[2])
    assert third is not None
    assert await found(store, rollout_id_contains=family, started_after=third.start_time) == ids[2:]
    assert await found(store, rollout_id_contains=family, started_before=third.start_time) == ids[:2]


async def test_query_rollouts_by_the_old_names(store: LightningStore) -> None:
    _, ids = await five(store)
    assert await found(store, rollout_ids=ids[:2]) == ids[:2]
    assert await found(store, rollout_ids=ids, status=["cancelled"]) == [ids[4]]
    assert await found(store, rollout_ids=ids[:2], rollout_id_in=ids[3:]) == ids[3:]


async def test_query_rollouts_sorts(store: LightningStore) -> None:
    family, ids = await five(store)

    async def by(name: str, order: str = "asc") -> list[str]:
        return await found(store, rollout_id_contains=family, sort_by=name, sort_order=order)

    assert await by("start_time", "desc") == ids[::-1]
    assert await by("rollout_id") == ids
    assert await by("end_time") == [ids[4], *ids[:4]], "what has not ended comes last"
    assert await by("mode", "desc") == [ids[0], ids[2], ids[4], ids[1], ids[3]]
    assert (await by("status"))[0] == ids[4]


async def test_query_rollouts_pages(store: LightningStore) -> None:
    family, ids = await five(store)
    page = await store.query_rollouts(rollout_id_contains=family, limit=2, offset=1)
    assert [rollout.rollout_id for rollout in page] == ids[1:3]
    assert (page.total, page.limit, page.offset, len(page)) == (5, 2, 1, 2)
    assert page[0].rollout_id == ids[1]
    assert [rollout.rollout_id for rollout in page[:1]] == [ids[1]]
    every = await store.query_rollouts(rollout_id_contains=family, limit=-1, offset=3)
    assert (len(every), every.total) == (2, 5)
    none = await store.query_rollouts(rollout_id_contains=family, limit=0)
    assert (len(none), none.total) == (0, 5)
    beyond = await store.query_rollouts(rollout_id_contains=family, offset=99)
    assert (len(beyond), beyond.total) == (0, 5)


async def test_pages_of_no_room_tell_how_many_there_are(store: LightningStore) -> None:
    made = await begun(store, worker_id=unique("worker"))
    await store.add_span(span_of(made))
    assert made.attempt.worker_id
    resources = await store.add_resources({})
    for page in (
        await store.query_rollouts(rollout_id_in=[made.rollout_id], limit=0),
        await store.query_attempts(made.rollout_id, limit=0),
        await store.query_spans(made.rollout_id, limit=0),
        await store.query_workers(worker_id_contains=made.attempt.worker_id, limit=0),
        await store.query_resources(resources_id=resources.resources_id, limit=0),
    ):
        assert (len(page), page.limit, page.offset, page.total) == (0, 0, 0, 1)


async def test_statuses_that_there_are_none_of_find_nothing(store: LightningStore) -> None:
    made = await begun(store, worker_id=unique("worker"))
    assert made.attempt.worker_id
    nonsense: Any = ["nonsense"]
    ids = [made.rollout_id]
    assert (await store.query_rollouts(status_in=nonsense)).total == 0
    assert (await store.query_rollouts(status_in=nonsense, rollout_id_in=ids, filter_logic="or")).total == 1
    assert (await store.query_rollouts(status_in=[*nonsense, "preparing"], rollout_id_in=ids)).total == 1
    assert (await store.query_workers(status_in=nonsense)).total == 0
    assert (await store.query_workers(status_in=[*nonsense, "busy"], worker_id_contains=made.attempt.worker_id)).total


async def test_query_rollouts_brings_the_latest_attempt(store: LightningStore) -> None:
    family, _ = await five(store)
    first, second, *_ = await store.query_rollouts(rollout_id_contains=family)
    assert isinstance(first, AttemptedRollout)
    assert first.attempt == await store.get_latest_attempt(first.rollout_id)
    assert not isinstance(second, AttemptedRollout)


@pytest.mark.parametrize(
    "query",
    [
        {"status_in": "queuing"},
        {"status_in": [3]},
        {"rollout_id_in": 3},
        {"rollout_id_contains": 3},
        {"filter_logic": "xor"},
        {"sort_by": "input"},
        {"sort_by": "nonexistent"},
        {"sort_order": "up"},
        {"limit": -2},
        {"limit": 1.5},
        {"offset": -1},
        {"started_after": "yesterday"},
    ],
)
async def test_query_rollouts_refuses_what_means_nothing(store: LightningStore, query: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(query)).partition("_contains")[0]):
        await store.query_rollouts(**query)


async def test_get_rollout_by_id(store: LightningStore) -> None:
    asked = await store.enqueue_rollout(1)
    assert await store.get_rollout_by_id(asked.rollout_id) == asked
    assert await store.get_rollout_by_id("nonexistent") is None
    assert await store.get_rollout_by_id("it's; DROP TABLE rollouts --") is None


async def test_query_rollouts_tells_apart_what_was_enqueued_at_once(store: LightningStore) -> None:
    run = unique("at-once")
    requests = [EnqueueRolloutRequest(input=number, rollout_id=f"{run}-{number}") for number in range(4)]
    ids = [rollout.rollout_id for rollout in await store.enqueue_many_rollouts(requests)]
    oldest = await store.query_rollouts(rollout_id_prefix=run, sort_by="start_time")
    newest = await store.query_rollouts(rollout_id_prefix=run, sort_by="start_time", sort_order="desc")
    assert [rollout.rollout_id for rollout in oldest] == ids
    assert [rollout.rollout_id for rollout in newest] == ids[::-1]


async def test_a_page_can_be_handed_to_another_process(store: LightningStore) -> None:
    rollout = await store.enqueue_rollout(1)
    for page in (
        await store.query_rollouts(rollout_id_in=[rollout.rollout_id]),
        await store.query_attempts(rollout.rollout_id),
    ):
        assert type(page) is PaginatedResult
        assert pickle.loads(pickle.dumps(page)) == page  # noqa: S301  # made here
