"""Work on Kafka goes to whoever has time for it: any number of stores, and nothing stays with those who left."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import Future
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Self

import pytest

from lightstream.runtime.clock import SystemClock
from lightstream.runtime.kafka import BY_KEY, Headers, Instead, Position, QueueSummary
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import PublishError
from lightstream.schemas.records import (
    ANY_RUN,
    AttemptState,
    AttemptStatus,
    EventKind,
    Record,
    RolloutSpec,
    RolloutState,
    RolloutStatus,
    TaskRequest,
    Verdict,
    VerdictOutcome,
)
from lightstream.schemas.topics import Topic
from lightstream.schemas.types import EnqueueRolloutRequest
from lightstream.store_views.stores import KafkaLightningStore
from lightstream.store_views.stores.kafka import dispatcher
from lightstream.store_views.stores.kafka.dispatcher import Dispatcher, LeaseRequest
from lightstream.up import Stack
from tests.store.support import under_way


@pytest.fixture(autouse=True)
def _patient_with_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that has just begun asks a worker for its queue, which takes a slow machine more than a second."""
    monkeypatch.setattr(dispatcher, "PATIENCE_S", 300.0)


@pytest.fixture(scope="module")
def running_worker(kafka_servers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """A worker for the module: each test leaves the queue empty."""
    settings = Settings.load(
        kafka_bootstrap_servers=kafka_servers,
        topic_prefix=f"t{uuid.uuid4().hex[:12]}.",
        topic_partitions=2,
        data_dir=tmp_path_factory.mktemp("dispatch"),
    )
    with Stack(settings, services=["worker"]) as stack:
        yield stack.settings


STORES = 7
"""More than the two partitions."""


@asynccontextmanager
async def opened(settings: Settings, count: int) -> AsyncGenerator[list[KafkaLightningStore]]:
    async with AsyncExitStack() as stack:
        stores = [KafkaLightningStore(settings) for _ in range(count)]
        for store in stores:
            await store.start()
            stack.push_async_callback(store.close)
        yield stores


async def test_more_stores_than_partitions_get_work(running_worker: Settings) -> None:
    async with opened(running_worker, STORES) as stores:
        waiting = [asyncio.create_task(store.dequeue_rollout(timeout_s=60)) for store in stores]
        asked = await stores[0].enqueue_many_rollouts([EnqueueRolloutRequest(input=n) for n in range(STORES)])
        taken = await asyncio.gather(*waiting)
        assert {rollout.rollout_id for rollout in taken if rollout} == {rollout.rollout_id for rollout in asked}


async def test_a_slow_rollout_holds_up_nobody_and_who_joins_late_gets_work(running_worker: Settings) -> None:
    async with opened(running_worker, 1) as (store,):
        await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=n) for n in range(40)])
        slow = await store.dequeue_rollout(timeout_s=60)
        assert slow is not None  # and it never ends
        async with opened(running_worker, 1) as (late,):
            taken = [await late.dequeue_rollout(timeout_s=60) for _ in range(39)]
            assert all(taken)
            assert await store.dequeue_rollout() is None


async def test_a_taker_that_gives_up_leaves_the_work_to_others(running_worker: Settings) -> None:
    async with opened(running_worker, 2) as (first, second):
        given_up = await under_way(first.dequeue_rollout(timeout_s=60), first.dequeue_rollout(timeout_s=0.1))
        given_up.cancel()
        await asyncio.wait([given_up])
        asked = await first.enqueue_rollout(1)
        taken = await second.dequeue_rollout(timeout_s=60)
        assert taken is not None
        assert taken.rollout_id == asked.rollout_id


class Log:
    """A publisher that keeps what it is given."""

    def __init__(self) -> None:
        self.written: list[tuple[TaskRequest, int]] = []
        self.futures: list[Future[Position]] = []
        self.more = asyncio.Event()

    def publish(
        self,
        topic: Topic,
        key: str,
        record: Record | None,
        *,
        headers: Headers | None = None,
        partition: int = BY_KEY,
        instead: Instead | None = None,
    ) -> Future[Position]:
        assert isinstance(record, TaskRequest)
        self.written.append((record, partition))
        self.futures.append(Future())
        self.more.set()
        return self.futures[-1]

    def flush(self, timeout_s: float) -> int:
        return 0


def at_once(call: Callable[[], None]) -> None:
    call()


class Asked:
    """A dispatcher that knows of two partitions, in which nothing waits yet."""

    def __init__(self) -> None:
        self.log = Log()
        self.requeued: list[str] = []
        self.dispatcher = Dispatcher(
            self.log,
            SystemClock(),
            [0, 1],
            answer_timeout_s=60.0,
            requeue=lambda s: self.requeued.append(s.status),
            post=at_once,
        )

    @classmethod
    async def ready(cls) -> Self:
        asked = cls()
        ready = asyncio.create_task(asked.dispatcher.ready())
        await asyncio.sleep(0)
        for request, partition in asked.log.written:
            assert request.worker_ids == []
            asked.dispatcher.on_queues(partition, {ANY_RUN: QueueSummary(0, ())})
            asked.dispatcher.on_answer(request.request_id, None, 0)
        asked.log.written.clear()
        await ready
        return asked

    def lease(self, *workers: str, deadline_s: float = 1e12, run_id: str = ANY_RUN) -> list[LeaseRequest]:
        leases = [LeaseRequest(worker, deadline_s, run_id) for worker in workers]
        self.dispatcher.add(leases)
        self.dispatcher.flush()
        return leases

    def asked(self) -> list[tuple[int, list[str]]]:
        return [(partition, request.worker_ids) for request, partition in self.log.written]


def state(rollout_id: str) -> RolloutState:
    attempt = AttemptState(attempt_id="a", sequence=1, status=AttemptStatus.PREPARING, started_unix_nano=1)
    return RolloutState(
        rollout=RolloutSpec(rollout_id=rollout_id),
        status=RolloutStatus.PREPARING,
        attempts=[attempt],
        updated_unix_nano=1,
        source_offset=1,
        verdict=Verdict(event_id="e", kind=EventKind.ATTEMPT_STARTED, outcome=VerdictOutcome.APPLIED),
    )


async def test_nothing_is_asked_for_where_nothing_waits() -> None:
    asked = await Asked.ready()
    leases = asked.lease("a", "b")
    assert asked.asked() == []
    assert all(asked.dispatcher.cancel(lease) for lease in leases)


async def test_one_request_asks_for_all_that_wait_here_in_the_order_of_both_queues() -> None:
    asked = await Asked.ready()
    asked.dispatcher.on_queues(0, {ANY_RUN: QueueSummary(2, [(0, 1, 10), (0, 1, 30)])})
    asked.dispatcher.on_queues(1, {ANY_RUN: QueueSummary(3, [(-5, 1, 99), (0, 0, 50)])})
    asked.lease("a", "b", "c", "d", "e", "f")
    # By priority, retry, age: partition 1 (-5), 1 (a retry), 0 (10), 0 (30), and what is behind the head.
    assert asked.asked() == [(1, ["a", "b", "e"]), (0, ["c", "d"])]


async def test_who_missed_is_served_next_and_who_has_left_gives_back() -> None:
    asked = await Asked.ready()
    asked.dispatcher.on_queues(0, {ANY_RUN: QueueSummary(2, [(0, 1, 1), (0, 1, 2)])})
    first, second = asked.lease("a", "b")
    ((request, _),) = asked.log.written
    first.future.cancel()
    asked.dispatcher.on_answer(request.request_id, state("r"), 0)
    assert asked.requeued == ["preparing"]
    assert not second.future.done()
    asked.dispatcher.on_queues(0, {ANY_RUN: QueueSummary(1, [(0, 1, 2)])})
    assert asked.asked()[-1] == (0, ["b"])


async def test_who_has_no_more_time_is_told_that_there_was_nothing() -> None:
    asked = await Asked.ready()
    asked.dispatcher.on_queues(0, {ANY_RUN: QueueSummary(1, [(0, 1, 1)])})
    (lease,) = asked.lease("a", deadline_s=0.0)
    assert not asked.dispatcher.cancel(lease)
    asked.dispatcher.on_answer(asked.log.written[0][0].request_id, None, 0)
    assert lease.future.result() is None


async def test_a_store_that_missed_asks_again_once_the_pause_is_over() -> None:
    """Others were quicker, and more waits."""
    asked = await Asked.ready()
    asked.dispatcher.on_queues(0, {ANY_RUN: QueueSummary(2, [(0, 1, 1), (0, 1, 2)])})
    asked.lease("a")
    asked.log.more.clear()
    asked.dispatcher.on_answer(asked.log.written[0][0].request_id, None, 0)
    assert len(asked.log.written) == 1, "it pauses"
    await asyncio.wait_for(asked.log.more.wait(), 300)
    assert asked.asked() == [(0, ["a"]), (0, ["a"])]


async def test_a_request_that_does_not_become_durable_is_an_error() -> None:
    asked = await Asked.ready()
    asked.dispatcher.on_queues(0, {ANY_RUN: QueueSummary(1, [(0, 1, 1)])})
    (lease,) = asked.lease("a")
    asked.log.futures[-1].set_exception(PublishError("lost"))
    assert isinstance(lease.future.exception(), PublishError)


async def test_answers_to_others_are_passed_over() -> None:
    asked = await Asked.ready()
    assert not asked.dispatcher.knows("other")
    asked.dispatcher.on_answer("other", state("r"), 0)
    assert asked.requeued == []


async def test_who_asks_for_a_run_is_neither_served_nor_held_up_by_another() -> None:
    asked = await Asked.ready()
    asked.dispatcher.on_queues(0, {ANY_RUN: QueueSummary(9, [(0, 1, 1)]), "a": QueueSummary(9, [(0, 1, 1)])})
    waiting = asyncio.create_task(asked.dispatcher.ready("b"))
    await asyncio.sleep(0)
    asked.lease("of b", run_id="b")
    assert {(p, r.run_id, len(r.worker_ids)) for r, p in asked.log.written} == {(0, "b", 0), (1, "b", 0)}
    for request, partition in list(asked.log.written):
        asked.dispatcher.on_queues(partition, {"b": QueueSummary(0, [])})
        asked.dispatcher.on_answer(request.request_id, None, 0)
    await waiting
    asked.log.written.clear()
    asked.dispatcher.flush()
    assert asked.log.written == []
    asked.lease("of any")
    asked.dispatcher.on_answer(asked.log.written.pop()[0].request_id, None, 0)  # in vain: it pauses
    asked.dispatcher.on_queues(1, {"b": QueueSummary(1, [(0, 1, 1)])})
    ((request, partition),) = asked.log.written
    assert (request.run_id, request.worker_ids, partition) == ("b", ["of b"], 1)


async def test_stores_of_two_runs_on_one_system_keep_apart(running_worker: Settings) -> None:
    async with opened(running_worker, 2) as (first, second):
        left = await first.enqueue_many_rollouts([EnqueueRolloutRequest(input=n, run_id="dead") for n in range(20)])
        waiting = [asyncio.create_task(second.dequeue_rollout(timeout_s=60, run_id="live")) for _ in range(3)]
        assert await first.dequeue_rollout(run_id="live") is None
        assert await first.dequeue_rollout(run_id="") is None
        asked = await first.enqueue_many_rollouts([EnqueueRolloutRequest(input=n, run_id="live") for n in range(3)])
        taken = [rollout for rollout in await asyncio.gather(*waiting) if rollout]
        assert {rollout.rollout_id for rollout in taken} == {rollout.rollout_id for rollout in asked}
        got = await second.dequeue_many_rollouts(limit=50, timeout_s=60, run_id="dead")
        got = [*got, *await first.dequeue_many_rollouts(limit=50, run_id="dead")]
        assert {rollout.rollout_id for rollout in got} == {rollout.rollout_id for rollout in left}
