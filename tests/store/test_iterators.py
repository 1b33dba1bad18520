"""Where several things are handed over, an iterator will do: it is gone through once, and none of it is dropped."""

from __future__ import annotations

from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.records import WorkerHeartbeat, WorkerStatus
from lightstream.schemas.types import EnqueueRolloutRequest

from .support import begun, reached, span_of, unique


async def test_enqueue_many_rollouts(store: LightningStore) -> None:
    made = await store.enqueue_many_rollouts(EnqueueRolloutRequest(input=n) for n in range(3))  # type: ignore[arg-type]  # on purpose
    assert [rollout.input for rollout in made] == [0, 1, 2]


async def test_add_many_spans(store: LightningStore) -> None:
    rollouts = [await begun(store) for _ in range(2)]
    new = await store.add_many_spans(span_of(rollout) for rollout in rollouts)  # type: ignore[arg-type]  # on purpose
    assert len(new) == 2
    for rollout in rollouts:
        assert len(await store.query_spans(rollout.rollout_id)) == 1


async def test_get_many_span_sequence_ids(store: LightningStore) -> None:
    rollout = await begun(store)
    ids, attempts = [rollout.rollout_id] * 2, [rollout.attempt.attempt_id] * 2
    assert list(await store.get_many_span_sequence_ids(zip(ids, attempts))) == [1, 2]  # type: ignore[arg-type]  # noqa: B905  # on purpose
    assert await store.get_next_span_sequence_id(rollout.rollout_id, rollout.attempt.attempt_id) == 3


async def test_wait_for_rollouts(store: LightningStore) -> None:
    ids = [(await begun(store)).rollout_id for _ in range(2)]
    for rollout_id in ids:
        await store.update_attempt(rollout_id, "latest", "succeeded")
    over = await store.wait_for_rollouts(rollout_ids=(name for name in ids), timeout=60)  # type: ignore[arg-type]  # on purpose
    assert [rollout.rollout_id for rollout in over] == ids


async def test_query_rollouts(store: LightningStore) -> None:
    ids = [(await begun(store)).rollout_id for _ in range(2)]
    for rollout_id in ids:
        await store.update_attempt(rollout_id, "latest", "succeeded")
    page = await store.query_rollouts(
        rollout_id_in=(name for name in ids),  # type: ignore[arg-type]  # on purpose
        status_in=(status for status in ("succeeded", "failed")),  # type: ignore[arg-type]  # on purpose
    )
    assert sorted(rollout.rollout_id for rollout in page) == sorted(ids)


async def test_heartbeat(store: LightningStore) -> None:
    rollout = await begun(store)
    worker = WorkerHeartbeat(worker_id=unique("w"), kind="runner", status=WorkerStatus.BUSY, heartbeat_unix_nano=1)
    await store.heartbeat(worker, iter([(rollout.rollout_id, rollout.attempt.attempt_id)]))  # type: ignore[arg-type]  # on purpose
    await reached(store, rollout.rollout_id, "running")
