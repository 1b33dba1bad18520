"""Dispatching work: the life cycle's lease beside Kafka's share groups (KIP-932, ``ShareConsumer``).

``python -m benchmarks.dispatch`` prints a table, and with ``--json`` one JSON object. Uses the cluster named by
``LIGHTSTREAM_KAFKA_BOOTSTRAP_SERVERS``, or a broker of its own. Topics are new ones, with a random prefix.

- ``lease``: ``dequeue_rollout``, whose answer is a judged, durable start of an attempt.
- ``share group``: a taker polls and acknowledges, without waiting for it; nobody knows that an attempt began.
- ``share group, judged``: the same, and the life cycle judges the start (``start_attempt``) before the acknowledgement:
  what a store on share groups would have to do.

Tasks per second and processor time (takers, worker and broker together) with 1 and 32 takers in one process; the time
from the call that enqueues to the task in a waiting taker's hands; how long a task stays with a taker that was killed;
how many of 40 tasks a slow taker keeps from the others; whether the highest priority goes first (1) or not (0).
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import queue
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar

from confluent_kafka import Message, Producer, ShareConsumer

# Public names that the package's __all__ lacks.
from confluent_kafka.admin import AdminClient  # isort: skip
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType  # type: ignore[attr-defined]  # pyright: ignore[reportPrivateImportUsage]  # isort: skip

from lightstream.broker import EmbeddedBroker
from lightstream.runtime.kafka import common_config, producer_config
from lightstream.runtime.settings import Settings
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import EnqueueRolloutRequest, RolloutConfig
from lightstream.store_views.stores import KafkaLightningStore

from .command import run
from .store.processes import BROKER_PID, Processes, running, settings_for

T = TypeVar("T")
TAKERS = (1, 32)
POLL_S = 0.2
TIMEOUT_S = 120.0
SILENCE_S = 2.0
"""After which the life cycle gives up a taker. The shortest that brokers allow share groups by default is 15 s."""

LOCK_MS = 15_000
HELD_OF = 40
WARM = 200
"""Tasks before the first that count: broker and worker are quicker then."""

RETRIED = RolloutConfig(unresponsive_seconds=SILENCE_S, max_attempts=2, retry_condition=["unresponsive"])


def measure(*, tasks: int = 600, latencies: int = 40) -> dict[str, float]:
    """Run all.

    Args:
        tasks: dispatched for each throughput.
        latencies: tasks enqueued one at a time, with a taker waiting.
    """
    with ExitStack() as stack:
        data_dir = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers, broker_pid = Settings.load().kafka_bootstrap_servers, int(os.environ.get(BROKER_PID, 0)) or None
        if servers is None:
            broker = stack.enter_context(EmbeddedBroker(Settings.load(data_dir=data_dir)))
            servers, broker_pid = broker.start(), broker.pid
        place = stack.enter_context(running(settings_for(servers, data_dir), ["worker"], broker_pid))
        return asyncio.run(_lease(place, tasks, latencies)) | _share(place, tasks, latencies)


def main() -> None:
    """Measure and print."""
    run(__doc__, measure, tasks=600, latencies=40)


# --- the life cycle's lease


async def _lease(place: Processes, tasks: int, latencies: int) -> dict[str, float]:
    store = KafkaLightningStore(place.settings)
    await store.start()
    figures: dict[str, float] = {}
    try:
        await _take(store, await _enqueued(store, WARM))
        for takers in TAKERS:
            await _enqueued(store, tasks)
            with _account(place, tasks, f"lease, {takers} takers", figures):
                await asyncio.gather(*(_take(store, tasks // takers) for _ in range(takers)))
                await _take(store, tasks % takers)
        times: list[float] = []
        for _ in range(latencies):
            waiting = asyncio.create_task(store.dequeue_rollout(timeout_s=TIMEOUT_S))
            await asyncio.sleep(0)
            began_s = time.perf_counter()
            await store.enqueue_rollout(1)
            assert await waiting is not None
            times.append(time.perf_counter() - began_s)
        figures["lease, enqueued to in hand, p50 ms"] = 1000 * sorted(times)[latencies // 2]
        figures["lease, s until another has a killed taker's task"] = await _lease_after_kill(place, store)
        await _enqueued(store, HELD_OF)
        await _take(store, 1)  # and it is slow
        figures[f"lease, of {HELD_OF} tasks with a slow taker"] = HELD_OF - await _take(store, HELD_OF - 1)
        for priority in range(8):
            await store.enqueue_rollout(priority, config=RolloutConfig(priority=priority))
        first = await store.dequeue_rollout()
        figures["lease, highest priority first"] = float(first is not None and first.input == 7)
        await _take(store, 7)
    finally:
        await store.close()
    return figures


async def _enqueued(store: LightningStore, count: int) -> int:
    await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=number) for number in range(count)])
    return count


async def _take(store: LightningStore, count: int) -> int:
    for _ in range(count):
        assert await store.dequeue_rollout(timeout_s=TIMEOUT_S) is not None
    return count


async def _lease_after_kill(place: Processes, store: LightningStore) -> float:
    made = await store.enqueue_rollout(1, config=RETRIED)
    await asyncio.to_thread(_kill_a_taker, _take_and_hold, place.settings)
    killed_s = time.perf_counter()
    again = await store.dequeue_rollout(timeout_s=TIMEOUT_S)
    assert again is not None
    assert again.rollout_id == made.rollout_id
    return time.perf_counter() - killed_s


def _take_and_hold(settings: Settings, taken: Connection) -> None:
    async def take() -> None:
        store = KafkaLightningStore(settings)
        await store.start()
        assert await store.dequeue_rollout(timeout_s=TIMEOUT_S) is not None
        taken.send("taken")
        await asyncio.sleep(TIMEOUT_S)

    asyncio.run(take())


# --- share groups


class _Tasks:
    """A topic of tasks and a share group on it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.topic = f"{settings.topic_prefix}tasks-{uuid.uuid4().hex[:6]}"
        self.group = f"{self.topic}-takers"
        admin = AdminClient(common_config(settings))
        (made,) = admin.create_topics([NewTopic(self.topic, settings.topic_partitions, 1)]).values()
        made.result(TIMEOUT_S)
        wanted = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": str(LOCK_MS)}
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in wanted.items()
        ]
        resource = ConfigResource(ResourceType.GROUP, self.group, incremental_configs=entries)
        for altered in admin.incremental_alter_configs([resource]).values():
            altered.result(TIMEOUT_S)
        self._producer = Producer(producer_config(settings, linger_ms=1.0))

    def put(self, values: list[str]) -> None:
        """Durable when this returns."""
        for value in values:
            self._producer.produce(self.topic, value.encode(), value.encode())
        assert self._producer.flush(TIMEOUT_S) == 0

    def taker(self) -> ShareConsumer:
        return _taker(self.settings, self.topic, self.group)


def _share(place: Processes, tasks: int, latencies: int) -> dict[str, float]:
    figures: dict[str, float] = {}
    _share_throughput(place, WARM, 1, False, "", {})
    for takers in TAKERS:
        for judged in (False, True):
            name = f"share group{', judged' if judged else ''}, {takers} takers"
            _share_throughput(place, tasks, takers, judged, name, figures)
    of_one = _Tasks(place.settings)
    with of_one.taker() as taker:
        of_one.put(["warm"])
        _polled(taker, 1)
        times: list[float] = []
        for number in range(latencies):
            began_s = time.perf_counter()
            of_one.put([str(number)])
            _polled(taker, 1)
            times.append(time.perf_counter() - began_s)
    figures["share group, enqueued to in hand, p50 ms"] = 1000 * sorted(times)[latencies // 2]
    lost = _Tasks(place.settings)
    lost.put(["lost"])
    _kill_a_taker(_poll_and_hold, lost.settings, lost.topic, lost.group)
    killed_s = time.perf_counter()
    with lost.taker() as taker:
        _polled(taker, 1)
    figures["share group, s until another has a killed taker's task"] = time.perf_counter() - killed_s
    held = _Tasks(place.settings)
    held.put([str(number) for number in range(HELD_OF)])
    with held.taker() as taker:
        figures[f"share group, of {HELD_OF} tasks with a slow taker"] = float(len(_first_poll(taker)))
    ordered = _Tasks(place.settings)
    ordered.put([str(priority) for priority in range(8)])  # a record has no priority: nothing else can be said
    with ordered.taker() as taker:
        figures["share group, highest priority first"] = float(_first_poll(taker)[0].value() == b"7")
    return figures


def _share_throughput(
    place: Processes, tasks: int, takers: int, judged: bool, name: str, figures: dict[str, float]
) -> None:
    work = _Tasks(place.settings)
    left = threading.Semaphore(0)
    stopping = threading.Event()
    warm: queue.Queue[None] = queue.Queue()
    judge = _Judge(place.settings) if judged else None
    ids = judge.enqueue(tasks) if judge is not None else [str(number) for number in range(tasks)]

    def take() -> None:
        with work.taker() as consumer:
            consumer.poll(POLL_S)
            warm.put(None)
            while not stopping.is_set():
                for message in _good(consumer.poll(POLL_S)):
                    if judge is not None:
                        judge.start((message.value() or b"").decode())
                    consumer.acknowledge(message)
                    consumer.commit_async()
                    left.release()

    threads = [threading.Thread(target=take) for _ in range(takers)]
    for thread in threads:
        thread.start()
    for _ in threads:
        warm.get(timeout=TIMEOUT_S)
    with _account(place, tasks, name, figures):
        work.put(ids)
        for _ in range(tasks):
            assert left.acquire(timeout=TIMEOUT_S), "a task was not dispatched"
    stopping.set()
    for thread in threads:
        thread.join()
    if judge is not None:
        judge.close()


class _Judge:
    """A store in a loop of its own, for takers that are threads."""

    def __init__(self, settings: Settings) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._store = KafkaLightningStore(settings)
        self._do(self._store.start())

    def enqueue(self, count: int) -> list[str]:
        requests = [EnqueueRolloutRequest(input=number) for number in range(count)]
        return [rollout.rollout_id for rollout in self._do(self._store.enqueue_many_rollouts(requests))]

    def start(self, rollout_id: str) -> None:
        self._do(self._store.start_attempt(rollout_id))

    def close(self) -> None:
        self._do(self._store.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(TIMEOUT_S)


def _poll_and_hold(settings: Settings, topic: str, group: str, taken: Connection) -> None:
    consumer = _taker(settings, topic, group)
    assert _first_poll(consumer)
    taken.send("taken")
    time.sleep(TIMEOUT_S)


def _taker(settings: Settings, topic: str, group: str) -> ShareConsumer:
    """One that asks for as few tasks at a time as it can: the broker still gives it whole batches."""
    config = {"group.id": group, "share.acknowledgement.mode": "explicit", "max.poll.records": 1}
    consumer = ShareConsumer(common_config(settings) | config)
    consumer.subscribe([topic])
    return consumer


def _first_poll(consumer: ShareConsumer) -> list[Message]:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not (messages := list(_good(consumer.poll(POLL_S)))):
        assert time.monotonic() < deadline_s, "nothing is dispatched"
    return messages


def _polled(consumer: ShareConsumer, count: int) -> None:
    """Take so many, one after another, each acknowledged for good."""
    while count > 0:
        for message in _first_poll(consumer):
            consumer.acknowledge(message)
            count -= 1
        consumer.commit_sync(TIMEOUT_S)


def _good(messages: Iterable[Message]) -> Iterator[Message]:
    return (message for message in messages if message.error() is None)


# --- both


def _kill_a_taker(hold: Callable[..., None], *arguments: object) -> None:
    """SIGKILL of a process that has taken one task."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=hold, args=(*arguments, theirs), daemon=True)
    process.start()
    assert ours.poll(TIMEOUT_S), "the taker takes nothing"
    process.kill()
    process.join(TIMEOUT_S)


@contextmanager
def _account(place: Processes, tasks: int, name: str, figures: dict[str, float]) -> Generator[None]:
    """Tasks per second of the block, and processor time of all processes for one."""
    used_s, began_s = sum(place.cpu_s().values()) + time.process_time(), time.perf_counter()
    yield
    figures[f"{name}, tasks/s"] = tasks / (time.perf_counter() - began_s)
    used_s = sum(place.cpu_s().values()) + time.process_time() - used_s
    figures[f"{name}, CPU us per task"] = 1e6 * used_s / tasks


if __name__ == "__main__":
    main()
