"""The store's contract, on a real broker with a real worker."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from lightstream.schemas.errors import NotFoundError, ServiceUnavailableError
from lightstream.schemas.interfaces import EnqueueRolloutRequest
from lightstream.schemas.records import (
    AttemptStatus,
    ResourcesRecord,
    RolloutConfig,
    RolloutStatus,
    VerdictOutcome,
    WorkerHeartbeat,
    WorkerStatus,
)
from lightstream.schemas.settings import Settings
from lightstream.store_views.stores import KafkaLightningStore
from lightstream.up import Stack

RETRY = RolloutConfig(max_attempts=2, retry_condition=[AttemptStatus.FAILED])


@pytest.fixture(scope="module")
def running(kafka_servers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Topics of this module's own, with a worker."""
    settings = Settings.load(
        kafka_bootstrap_servers=kafka_servers,
        topic_prefix=f"t{uuid.uuid4().hex[:12]}.",
        topic_partitions=2,
        data_dir=tmp_path_factory.mktemp("store"),
        publish_timeout_s=30.0,
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


def test_enqueue_dequeue_succeed(running: Settings) -> None:
    async def scenario() -> None:
        async with opened(running) as store:
            asked = await store.enqueue_rollout(EnqueueRolloutRequest(input={"task": 7}, mode="val", run_id="r"))
            assert asked.status == "queuing"
            taken = await store.dequeue_rollout("w1", timeout_s=30)
            assert taken is not None
            assert (taken.rollout_id, taken.input, taken.mode) == (asked.rollout_id, {"task": 7}, "val")
            assert (taken.status, taken.attempt.status, taken.attempt.worker_id) == ("running", "running", "w1")
            ended = asyncio.create_task(store.wait_for_rollouts([asked.rollout_id], timeout_s=30))
            await asyncio.sleep(0)
            state = await store.end_attempt(taken.rollout_id, taken.attempt.attempt_id, succeeded=True)
            assert state.status is RolloutStatus.SUCCEEDED
            assert [s.rollout.rollout_id for s in await ended] == [asked.rollout_id]

    asyncio.run(scenario())


def test_an_enqueue_that_is_repeated_is_the_same_rollout(running: Settings) -> None:
    async def scenario() -> None:
        rollout_id = f"ro-{uuid.uuid4().hex}"
        async with opened(running) as store:
            first, second = await store.enqueue_many_rollouts(
                [EnqueueRolloutRequest(input=number, rollout_id=rollout_id) for number in (1, 2)]
            )
            assert first == second
            assert first.input == 1
            taken = await store.dequeue_rollout("w1", timeout_s=30)
            assert taken is not None
            await store.end_attempt(rollout_id, taken.attempt.attempt_id, succeeded=True)
            assert await store.dequeue_rollout("w1", timeout_s=1) is None

    asyncio.run(scenario())


def test_many_workers_take_each_rollout_once(running: Settings) -> None:
    async def worker(name: str, ids: set[str], seen: list[str]) -> None:
        async with opened(running) as store:
            while len(seen) < len(ids):
                taken = await store.dequeue_rollout(name, timeout_s=0.2)
                if taken is not None:
                    seen.append(taken.rollout_id)
                    await store.end_attempt(taken.rollout_id, taken.attempt.attempt_id, succeeded=True)

    async def scenario() -> None:
        async with opened(running) as store:
            asked = await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=i) for i in range(60)])
        ids, seen = {rollout.rollout_id for rollout in asked}, list[str]()
        async with asyncio.timeout(60):
            await asyncio.gather(*(worker(f"w{i}", ids, seen) for i in range(3)))
        assert sorted(seen) == sorted(ids)

    asyncio.run(scenario())


def test_a_failed_attempt_is_retried_and_keeps_its_error(running: Settings) -> None:
    async def scenario() -> None:
        async with opened(running) as store:
            await store.enqueue_rollout(EnqueueRolloutRequest(input=None, config=RETRY))
            first = await store.dequeue_rollout("w1", timeout_s=30)
            assert first is not None
            state = await store.end_attempt(
                first.rollout_id,
                first.attempt.attempt_id,
                succeeded=False,
                error_type="ValueError",
                error_message="no",
            )
            assert state.status is RolloutStatus.REQUEUING
            second = await store.dequeue_rollout("w1", timeout_s=30)
            assert second is not None
            assert second.rollout_id == first.rollout_id
            assert second.attempt.sequence_id == 2
            late = await store.end_attempt(first.rollout_id, first.attempt.attempt_id, succeeded=True)
            assert late.verdict.outcome is VerdictOutcome.IGNORED
            assert late.status is RolloutStatus.RUNNING
            state = await store.end_attempt(second.rollout_id, second.attempt.attempt_id, succeeded=True)
            assert state.status is RolloutStatus.SUCCEEDED
            assert [(a.status, a.error_type) for a in state.attempts] == [
                (AttemptStatus.FAILED, "ValueError"),
                (AttemptStatus.SUCCEEDED, None),
            ]

    asyncio.run(scenario())


def test_a_cancelled_rollout_stays_cancelled(running: Settings) -> None:
    async def scenario() -> None:
        async with opened(running) as store:
            asked = await store.enqueue_rollout(EnqueueRolloutRequest(input=None))
            assert (await store.cancel_rollout(asked.rollout_id, "not needed")).status is RolloutStatus.CANCELLED
            assert await store.dequeue_rollout("w1", timeout_s=1) is None

    asyncio.run(scenario())


def test_what_does_not_exist_is_an_error_in_the_interfaces_words(running: Settings) -> None:
    async def scenario() -> None:
        async with opened(running) as store:
            with pytest.raises(NotFoundError, match="Rollout nonexistent not found"):
                await store.cancel_rollout("nonexistent")
            with pytest.raises(NotFoundError, match="Resources nonexistent not found"):
                await store.get_resources("nonexistent", timeout_s=0.1)

    asyncio.run(scenario())


def test_resources_by_id_and_latest(running: Settings) -> None:
    async def scenario() -> None:
        async with opened(running) as writer, opened(running) as reader:
            for version in (1, 2):
                await writer.add_resources(
                    ResourcesRecord(resources_id=f"v{version}", version=version, created_unix_nano=version)
                )
            assert (await reader.get_resources("v2", timeout_s=30)).version == 2
            assert (await reader.get_resources("v1")).version == 1
            assert (await reader.get_resources()).version == 2

    asyncio.run(scenario())


def test_heartbeats_are_written_for_worker_and_attempts(running: Settings) -> None:
    async def scenario() -> None:
        async with opened(running) as store:
            await store.enqueue_rollout(EnqueueRolloutRequest(input=None))
            taken = await store.dequeue_rollout("w1", timeout_s=30)
            assert taken is not None
            beat = WorkerHeartbeat(worker_id="w1", kind="runner", status=WorkerStatus.BUSY, heartbeat_unix_nano=1)
            await store.heartbeat(beat, [(taken.rollout_id, taken.attempt.attempt_id)])
            state = await store.end_attempt(taken.rollout_id, taken.attempt.attempt_id, succeeded=True)
            assert state.attempts[0].last_heartbeat_unix_nano is not None

    asyncio.run(scenario())


def test_without_a_worker_a_write_says_what_is_missing(settings: Settings) -> None:
    async def scenario() -> None:
        async with opened(Settings.load(**{**settings.model_dump(), "publish_timeout_s": 1.0})) as store:
            with pytest.raises(ServiceUnavailableError, match="lightstream worker"):
                await store.enqueue_rollout(EnqueueRolloutRequest(input=None))

    asyncio.run(scenario())


def test_without_topics_a_store_says_how_to_make_them(kafka_servers: str, tmp_path: Path) -> None:
    settings = Settings.load(kafka_bootstrap_servers=kafka_servers, topic_prefix="never.made.", data_dir=tmp_path)

    async def scenario() -> None:
        with pytest.raises(ServiceUnavailableError, match="lightstream topics create"):
            await KafkaLightningStore(settings).start()

    asyncio.run(scenario())
