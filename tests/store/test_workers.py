"""``update_worker``, ``query_workers``, ``get_worker_by_id``; what workers are said to do."""

from __future__ import annotations

import time
from typing import Any

import pytest

from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.records import WorkerHeartbeat, WorkerStatus
from lightstream.schemas.types import EnqueueRolloutRequest, RolloutConfig, Worker

from .support import begun, reached, taken, unique


async def worker_of(store: LightningStore, worker_id: str) -> Worker:
    worker = await store.get_worker_by_id(worker_id)
    assert worker is not None
    return worker


async def test_update_worker_is_a_heartbeat(store: LightningStore) -> None:
    name, before = unique("w"), time.time()
    worker = await store.update_worker(name, {"cpu": 0.5})
    assert (worker.worker_id, worker.status, worker.heartbeat_stats) == (name, "unknown", {"cpu": 0.5})
    assert worker.last_heartbeat_time is not None
    assert before <= worker.last_heartbeat_time <= time.time()
    again = await store.update_worker(name)
    assert again.heartbeat_stats == {"cpu": 0.5}
    assert await store.get_worker_by_id(name) == again


async def test_update_worker_refuses_wrong_types(store: LightningStore) -> None:
    name = unique("w")
    wrong: Any
    for wrong in (3, "x"):
        with pytest.raises(ValueError, match="heartbeat_stats"):
            await store.update_worker(name, wrong)
    assert await store.get_worker_by_id(name) is None


async def test_a_heartbeat_without_figures_keeps_those_that_there_are(store: LightningStore) -> None:
    name = unique("w")
    assert (await store.update_worker(name, None)).heartbeat_stats is None
    first = await store.update_worker(name, {"cpu": 1})
    second = await store.update_worker(name, None)
    assert second.heartbeat_stats == {"cpu": 1}
    assert (second.last_heartbeat_time or 0) >= (first.last_heartbeat_time or 0)


async def test_a_worker_is_busy_from_dequeue_to_end(store: LightningStore) -> None:
    name = unique("w")
    await store.update_worker(name, {"cpu": 1})
    await store.enqueue_rollout(1)
    rollout = await taken(store, name)
    busy = await worker_of(store, name)
    assert (busy.status, busy.current_rollout_id) == ("busy", rollout.rollout_id)
    assert busy.current_attempt_id == rollout.attempt.attempt_id
    assert busy.last_dequeue_time is not None
    assert busy.last_busy_time is not None
    assert busy.heartbeat_stats == {"cpu": 1}
    await store.update_attempt(rollout.rollout_id, "latest", status="succeeded")
    idle = await worker_of(store, name)
    assert (idle.status, idle.current_rollout_id, idle.current_attempt_id) == ("idle", None, None)
    assert idle.last_idle_time is not None
    assert idle.last_busy_time == busy.last_busy_time


@pytest.mark.parametrize(
    ("status", "then"), [("running", "busy"), ("failed", "idle"), ("timeout", "unknown"), ("unresponsive", "unknown")]
)
async def test_a_worker_follows_its_attempt(store: LightningStore, status: Any, then: str) -> None:
    name = unique("w")
    made = await begun(store)
    await store.update_attempt(made.rollout_id, "latest", status=status, worker_id=name)
    worker = await worker_of(store, name)
    assert worker.status == then
    assert worker.current_rollout_id == (made.rollout_id if then == "busy" else None)


async def test_a_worker_that_takes_several_is_busy_with_the_last(store: LightningStore) -> None:
    name = unique("w")
    await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=number) for number in range(2)])
    several = await store.dequeue_many_rollouts(limit=5, worker_id=name)
    worker = await worker_of(store, name)
    assert (worker.status, worker.last_idle_time) == ("busy", None), "that there were no more does not make it idle"
    assert (len(several), worker.current_rollout_id) == (2, several[-1].rollout_id)


async def test_calls_of_a_worker_in_a_row_do_not_undo_each_other(store: LightningStore) -> None:
    name = unique("w")
    for number in range(10):
        await store.enqueue_rollout(number)
        first = await taken(store, name)
        await store.update_attempt(first.rollout_id, "latest", status="succeeded")
        report = WorkerHeartbeat(worker_id=name, kind="runner", status=WorkerStatus.IDLE, heartbeat_unix_nano=number)
        await store.heartbeat(report, [])
        await store.enqueue_rollout(number)
        second = await taken(store, name)
        worker = await store.update_worker(name, {"number": number})
        assert (worker.status, worker.current_attempt_id) == ("busy", second.attempt.attempt_id)
        assert worker.heartbeat_stats == {"number": number}
        assert await worker_of(store, name) == worker
        await store.update_attempt(second.rollout_id, "latest", status="succeeded")


async def test_a_worker_that_finds_nothing_is_idle(store: LightningStore) -> None:
    name = unique("w")
    assert await store.dequeue_rollout(name) is None
    worker = await worker_of(store, name)
    assert worker.status == "idle"
    assert worker.last_dequeue_time is not None


async def test_a_runners_report_keeps_what_the_store_saw(store: LightningStore) -> None:
    name = unique("w")
    made = await begun(store, worker_id=name)
    report = WorkerHeartbeat(
        worker_id=name,
        kind="runner",
        status=WorkerStatus.BUSY,
        rollout_ids=[made.rollout_id],
        heartbeat_unix_nano=time.time_ns(),
    )
    await store.heartbeat(report, [(made.rollout_id, made.attempt.attempt_id), ("nonexistent", "x")])
    worker = await worker_of(store, name)
    assert (worker.status, worker.current_attempt_id) == ("busy", made.attempt.attempt_id)
    assert worker.last_heartbeat_time is not None
    assert worker.last_busy_time is not None


async def test_query_workers_filters_sorts_and_pages(store: LightningStore) -> None:
    family = unique("family")
    for name in "bca":
        await store.update_worker(f"{family}-{name}")
    await begun(store, worker_id=f"{family}-c")

    async def names(**query: Any) -> list[str]:
        return [w.worker_id[-1] for w in await store.query_workers(worker_id_contains=family, **query)]

    assert await names() == ["b", "c", "a"]
    assert await names(status_in=["busy"]) == ["c"]
    assert await names(sort_by="worker_id", sort_order="desc") == ["c", "b", "a"]
    assert (await names(sort_by="last_busy_time"))[0] == "c"
    page = await store.query_workers(worker_id_contains=family, limit=1, offset=2)
    assert ([w.worker_id[-1] for w in page], page.total) == (["a"], 3)
    with pytest.raises(ValueError, match="status_in"):
        await store.query_workers(status_in="busy")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # what is tested


async def test_get_worker_by_id_of_what_does_not_exist(store: LightningStore) -> None:
    assert await store.get_worker_by_id("nonexistent") is None


async def test_a_runner_with_two_attempts_is_busy_until_both_are_over(store: LightningStore) -> None:
    name = unique("w")
    report = WorkerHeartbeat(
        worker_id=name, kind="runner", status=WorkerStatus.IDLE, heartbeat_unix_nano=time.time_ns()
    )
    await store.heartbeat(report, [])
    first, second = await begun(store, worker_id=name), await begun(store, worker_id=name)
    worker = await worker_of(store, name)
    assert (worker.current_rollout_id, worker.current_attempt_id) == (second.rollout_id, second.attempt.attempt_id)
    await store.update_attempt(second.rollout_id, "latest", status="succeeded")
    worker = await worker_of(store, name)
    assert (worker.status, worker.current_rollout_id) == ("busy", first.rollout_id)
    assert worker.current_attempt_id == first.attempt.attempt_id
    assert await store.dequeue_rollout(name) is None
    assert (await worker_of(store, name)).status == "busy"
    await store.update_attempt(first.rollout_id, "latest", status="failed")
    worker = await worker_of(store, name)
    assert (worker.status, worker.current_rollout_id, worker.current_attempt_id) == ("idle", None, None)


async def test_a_worker_is_rid_of_what_a_deadline_took(store: LightningStore) -> None:
    name = unique("w")
    made = await begun(store, worker_id=name, config=RolloutConfig(timeout_seconds=0.05))
    await reached(store, made.rollout_id, "failed")
    worker = await worker_of(store, name)
    assert (worker.status, worker.current_rollout_id, worker.current_attempt_id) == ("unknown", None, None)
    assert worker.last_idle_time is not None
    [listed] = await store.query_workers(worker_id_contains=name)
    assert listed == worker
    alive = await store.update_worker(name, {"cpu": 1.0})
    assert alive == await worker_of(store, name)
    assert (alive.status, alive.current_attempt_id, alive.last_idle_time) == ("unknown", None, worker.last_idle_time)
    again = await begun(store, worker_id=name)
    assert (await worker_of(store, name)).current_attempt_id == again.attempt.attempt_id
