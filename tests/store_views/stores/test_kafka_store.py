"""The store's contract, on a real broker with a real worker."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import ServiceUnavailableError, StoreError
from lightstream.schemas.records import (
    EventKind,
    RolloutSpec,
    RolloutState,
    RolloutStatus,
    Verdict,
    VerdictOutcome,
    WorkerHeartbeat,
    WorkerStatus,
)
from lightstream.schemas.topics import ROLLOUT_EVENTS, WORKERS
from lightstream.schemas.types import EnqueueRolloutRequest, PromptTemplate, RolloutConfig
from lightstream.store_views.stores import KafkaLightningStore
from lightstream.store_views.stores.kafka import log as log_module
from lightstream.store_views.stores.kafka.dispatcher import LeaseRequest
from lightstream.store_views.stores.kafka.log import LEASED_AT_ONCE_MAX, KafkaLog
from lightstream.store_views.stores.kafka.writer import SLICE_EVENTS, SLICES_AT_ONCE
from lightstream.up import Stack
from tests.support.log_tail import LogTail

AT_ONCE = SLICE_EVENTS * SLICES_AT_ONCE
RETRY = RolloutConfig(max_attempts=2, retry_condition=["failed"])


@pytest.fixture(scope="module")
def running(kafka_servers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Topics of this module's own, with a worker."""
    settings = Settings.load(
        kafka_bootstrap_servers=kafka_servers,
        topic_prefix=f"t{uuid.uuid4().hex[:12]}.",
        topic_partitions=2,
        data_dir=tmp_path_factory.mktemp("store"),
    )
    with Stack(settings, services=["worker"]) as stack:
        yield stack.settings


@asynccontextmanager
async def opened(settings: Settings) -> AsyncGenerator[KafkaLightningStore]:
    store = KafkaLightningStore(settings)
    await store.start()
    try:
        yield store
    finally:
        await store.close()


def state_of(rollout_id: str) -> RolloutState:
    return RolloutState(
        rollout=RolloutSpec(rollout_id=rollout_id),
        status=RolloutStatus.PREPARING,
        updated_unix_nano=1,
        source_offset=1,
        verdict=Verdict(event_id="e", kind=EventKind.ATTEMPT_STARTED, outcome=VerdictOutcome.APPLIED),
    )


async def test_enqueue_dequeue_succeed(running: Settings) -> None:
    async with opened(running) as store:
        asked = await store.enqueue_rollout({"task": 7}, mode="val", run_id="r")
        assert asked.status == "queuing"
        taken = await store.dequeue_rollout("w1", timeout_s=60)
        assert taken is not None
        assert (taken.rollout_id, taken.input, taken.mode) == (asked.rollout_id, {"task": 7}, "val")
        assert (taken.status, taken.attempt.status, taken.attempt.worker_id) == ("preparing", "preparing", "w1")
        ended = await store.update_attempt(taken.rollout_id, taken.attempt.attempt_id, status="succeeded")
        assert ended.status == "succeeded"


async def test_an_enqueue_that_is_repeated_is_the_same_rollout(running: Settings) -> None:
    rollout_id = f"ro-{uuid.uuid4().hex}"
    async with opened(running) as store:
        first, second = await store.enqueue_many_rollouts(
            [EnqueueRolloutRequest(input=number, rollout_id=rollout_id) for number in (1, 2)]
        )
        assert first == second
        assert first.input == 1
        taken = await store.dequeue_rollout("w1", timeout_s=60)
        assert taken is not None
        await store.update_attempt(rollout_id, taken.attempt.attempt_id, status="succeeded")
        assert await store.dequeue_rollout("w1", timeout_s=1) is None


async def test_an_enqueue_of_very_many_is_answered_in_their_order(running: Settings) -> None:
    """They are written some hundred at a time; the first and the last are one rollout."""
    rollout_id = f"ro-{uuid.uuid4().hex}"
    requests = [EnqueueRolloutRequest(input=number) for number in range(2 * AT_ONCE + 1)]
    requests[0].rollout_id = requests[-1].rollout_id = rollout_id
    async with opened(running) as store:
        asked = await store.enqueue_many_rollouts(requests)
        assert [rollout.input for rollout in asked] == [*range(2 * AT_ONCE), 0]
        ids = {rollout.rollout_id for rollout in asked}
        assert len(ids) == 2 * AT_ONCE
        taken = set[str]()
        async with asyncio.timeout(120):
            while taken < ids:
                got = await store.dequeue_many_rollouts(limit=len(ids), timeout_s=1)
                await asyncio.gather(*(store.update_rollout(one.rollout_id, status="succeeded") for one in got))
                taken.update(one.rollout_id for one in got)
        assert taken == ids
        assert await store.dequeue_rollout(timeout_s=0.5) is None


async def test_who_waits_for_a_result_is_told_that_the_store_was_closed(settings: Settings) -> None:
    """Without a worker none comes. A ``CancelledError`` would mean that somebody had cancelled the task."""
    events = LogTail(settings, ROLLOUT_EVENTS)
    async with opened(settings) as store:
        waiting = asyncio.create_task(store.enqueue_rollout({"task": 7}))
        while not await asyncio.to_thread(events.poll):
            assert not waiting.done()
    events.close()
    with pytest.raises(ServiceUnavailableError, match=r"closed before the result came\..*may still take effect"):
        await waiting


async def test_who_waits_for_work_is_told_that_the_store_was_closed(running: Settings) -> None:
    async with opened(running) as store:
        assert await store.dequeue_rollout("w1") is None  # it knows now that nothing waits
        waiting = asyncio.create_task(store.dequeue_rollout("w1", timeout_s=600))
        several = asyncio.create_task(store.dequeue_many_rollouts(limit=3, worker_id="w1", timeout_s=600))
        await asyncio.sleep(0)
    for task in (waiting, several):
        with pytest.raises(ServiceUnavailableError, match="closed"):
            await task


def test_of_very_many_events_only_some_hundred_wait_for_their_result(settings: Settings) -> None:
    """Without a worker none is answered: the others were never written."""
    impatient = settings.model_copy(update={"publish_timeout_s": 20.0})

    async def scenario() -> None:
        async with opened(impatient) as store:
            with pytest.raises(ServiceUnavailableError, match="lightstream worker"):
                await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=i) for i in range(2 * AT_ONCE)])

    asyncio.run(scenario())
    events = LogTail(settings, ROLLOUT_EVENTS)
    written = [logged.record for logged in events.read_to_end()]
    events.close()
    assert len(written) == AT_ONCE


async def test_what_only_the_life_cycle_refuses_concerns_one_of_many(running: Settings) -> None:
    """A worker whose records are smaller than this store believes: the others are enqueued, once however often."""
    believes = running.model_copy(update={"record_bytes_max": 2 * running.record_bytes_max})
    good = EnqueueRolloutRequest(input=1, rollout_id=f"ro-{uuid.uuid4().hex}")
    refused = EnqueueRolloutRequest(
        input="x" * (20 * 1024 * 1024), rollout_id=f"ro-{uuid.uuid4().hex}", config=RolloutConfig(max_attempts=1000)
    )
    async with opened(believes) as store:
        for _ in range(2):
            with pytest.raises(StoreError, match="fit in a record"):
                await store.enqueue_many_rollouts([good, refused])
        taken = await store.dequeue_rollout("w1", timeout_s=60)
        assert taken is not None
        assert taken.rollout_id == good.rollout_id
        await store.update_attempt(taken.rollout_id, "latest", status="succeeded")
        assert await store.dequeue_rollout("w1", timeout_s=1) is None
        assert (await store.enqueue_rollout(2, rollout_id=refused.rollout_id)).status == "queuing", "it never was"
        await store.cancel_rollout(refused.rollout_id or "")


async def test_many_workers_take_each_rollout_once(running: Settings) -> None:
    async def worker(name: str, ids: set[str], seen: list[str]) -> None:
        async with opened(running) as store:
            while len(seen) < len(ids):
                taken = await store.dequeue_rollout(name, timeout_s=0.2)
                if taken is not None:
                    seen.append(taken.rollout_id)
                    await store.update_attempt(taken.rollout_id, taken.attempt.attempt_id, status="succeeded")

    async with opened(running) as store:
        asked = await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=i) for i in range(60)])
    ids, seen = {rollout.rollout_id for rollout in asked}, list[str]()
    async with asyncio.timeout(240):
        await asyncio.gather(*(worker(f"w{i}", ids, seen) for i in range(3)))
    assert sorted(seen) == sorted(ids)


def test_a_limit_far_beyond_what_waits_is_asked_for_in_parts(
    running: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, made = 2 * LEASED_AT_ONCE_MAX + 3, list[LeaseRequest]()

    def request(worker_id: str, deadline_s: float, run_id: str) -> LeaseRequest:
        made.append(LeaseRequest(worker_id, deadline_s, run_id))
        return made[-1]

    monkeypatch.setattr(log_module, "LeaseRequest", request)

    async def scenario() -> None:
        async with opened(running) as store:
            asked = await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=i) for i in range(count)])
            taken = await store.dequeue_many_rollouts(limit=10**6, worker_id="w1", timeout_s=60)
            assert sorted(one.rollout_id for one in taken) == sorted(one.rollout_id for one in asked)
            await asyncio.gather(*(store.update_rollout(one.rollout_id, status="succeeded") for one in taken))
            assert await store.dequeue_many_rollouts(limit=10**6, worker_id="w1", timeout_s=0.5) == []

    asyncio.run(scenario())
    assert len(made) <= count + 2 * LEASED_AT_ONCE_MAX


async def test_a_caller_that_leaves_while_more_is_asked_for_leaves_what_came_before(
    running: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One part was leased, and the next is being asked for: all of it goes back into the queue."""
    asks_for_more, lease_part = asyncio.Event(), KafkaLog._lease_part  # pyright: ignore[reportPrivateUsage]  # where a part begins
    loop = asyncio.get_running_loop()

    async def lease(self: KafkaLog, *arguments: Any) -> list[RolloutState]:
        if arguments[3] == 0.0:  # not the first part: nothing comes
            loop.call_soon_threadsafe(asks_for_more.set)
            await asyncio.Event().wait()
        return await lease_part(self, *arguments)

    async with opened(running) as store, opened(running) as other:
        asked = await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=i) for i in range(LEASED_AT_ONCE_MAX)])
        monkeypatch.setattr(KafkaLog, "_lease_part", lease)
        asking = asyncio.create_task(store.dequeue_many_rollouts(limit=10**6, timeout_s=60))
        await asks_for_more.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        monkeypatch.undo()
        again = set[str]()
        async with asyncio.timeout(60):
            while len(again) < len(asked):
                again |= {one.rollout_id for one in await other.dequeue_many_rollouts(limit=300, timeout_s=60)}
        assert again == {one.rollout_id for one in asked}
        await asyncio.gather(*(other.update_rollout(one, status="succeeded") for one in again))


async def test_a_failed_attempt_is_retried_and_keeps_its_error(running: Settings) -> None:
    async with opened(running) as store:
        await store.enqueue_rollout(None, config=RETRY)
        first = await store.dequeue_rollout("w1", timeout_s=60)
        assert first is not None
        ended = await store.update_attempt(
            first.rollout_id, first.attempt.attempt_id, "failed", error_type="ValueError", error_message="no"
        )
        assert (ended.status, ended.error_type, ended.error_message) == ("failed", "ValueError", "no")
        second = await store.dequeue_rollout("w1", timeout_s=60)
        assert second is not None
        assert (second.rollout_id, second.attempt.sequence_id) == (first.rollout_id, 2)
        late = await store.update_attempt(first.rollout_id, first.attempt.attempt_id, status="succeeded")
        assert late.status == "failed", "what comes too late changes nothing"
        await store.update_attempt(second.rollout_id, second.attempt.attempt_id, status="succeeded")


async def test_resources_of_one_store_reach_another(running: Settings) -> None:
    async with opened(running) as writer, opened(running) as reader:
        prompt = PromptTemplate(template="{task}")
        await writer.update_resources("v1", {"prompt": prompt})
        await writer.update_resources("v2", {"prompt": prompt})
        found = await reader.get_resources_by_id("v2", timeout_s=60)
        assert found is not None
        assert found.resources == {"prompt": prompt}
        assert await reader.get_latest_resources() == found
        assert await reader.get_resources_by_id("v3", timeout_s=0.1) is None
    async with opened(running) as later:
        assert await later.get_latest_resources() == found, "a store knows all resources once it has started"


async def test_heartbeats_are_written_for_worker_and_attempts(running: Settings) -> None:
    async with opened(running) as store:
        await store.enqueue_rollout(None)
        taken = await store.dequeue_rollout("w1", timeout_s=60)
        assert taken is not None
        beat = WorkerHeartbeat(worker_id="w1", kind="runner", status=WorkerStatus.BUSY, heartbeat_unix_nano=1)
        await store.heartbeat(beat, [(taken.rollout_id, taken.attempt.attempt_id)])
        workers = LogTail(running, WORKERS)
        told = [logged.record for logged in workers.read_to_end() if logged.key == "w1"][-1]
        workers.close()
        assert isinstance(told, WorkerHeartbeat)
        assert (told.kind, told.status, told.heartbeat_unix_nano) == ("runner", WorkerStatus.BUSY, 1)
        ended = await store.update_attempt(taken.rollout_id, taken.attempt.attempt_id, status="succeeded")
        assert ended.last_heartbeat_time is not None


async def test_without_a_worker_a_write_says_what_is_missing(settings: Settings) -> None:
    async with opened(Settings.load(**{**settings.model_dump(), "publish_timeout_s": 5.0})) as store:
        with pytest.raises(ServiceUnavailableError, match="lightstream worker"):
            await store.enqueue_rollout(None)


async def test_without_a_view_a_wait_is_over_once_all_have_ended_meanwhile(running: Settings) -> None:
    async with opened(running) as store, opened(running) as other:
        ids = [(await other.start_rollout(number)).rollout_id for number in range(3)]
        waiting = asyncio.create_task(store.wait_for_rollouts(rollout_ids=ids))
        await asyncio.sleep(0)  # it waits now
        for rollout_id in reversed(ids):
            assert not waiting.done()
            await other.update_rollout(rollout_id, status="succeeded")
        ended = await asyncio.wait_for(waiting, 300)
        assert [rollout.rollout_id for rollout in ended] == ids


async def test_without_a_view_a_wait_ends_and_says_what_is_missing(settings: Settings) -> None:
    async with opened(Settings.load(**{**settings.model_dump(), "publish_timeout_s": 2.0})) as store:
        with pytest.raises(ServiceUnavailableError, match="lightstream view"):
            await store.wait_for_rollouts(rollout_ids=["r"], timeout=0.1)


async def test_without_topics_a_store_says_how_to_make_them(kafka_servers: str, tmp_path: Path) -> None:
    settings = Settings.load(kafka_bootstrap_servers=kafka_servers, topic_prefix="never.made.", data_dir=tmp_path)
    with pytest.raises(ServiceUnavailableError, match="lightstream topics create"):
        await KafkaLightningStore(settings).start()
