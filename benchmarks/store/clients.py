"""Client processes, each with one store and several clients of it, as tasks of one event loop."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event, Semaphore
from typing import Any, Literal

from lightstream.runtime.gc_tuning import tune_gc
from lightstream.runtime.settings import Settings
from lightstream.schemas.interfaces import LightningStore
from lightstream.store_views.stores import KafkaLightningStore
from lightstream.store_views.stores.http import LightningStoreClient

TASK = {"question": "what is 2 + 2?"}

Transport = Literal["kafka", "http"]
Work = Literal["run", "enqueue_and_run"]
"""Work of a client: take rollouts and succeed, or also enqueue each before."""

TIMEOUT_S = 60.0
DEQUEUE_TIMEOUT_S = 0.2
"""Longest time in which a client that finds nothing notices that the measurement is over."""


@dataclass(frozen=True, slots=True)
class _Shared:
    """State shared by the client processes and the measuring one."""

    ready: Semaphore
    go: Event
    over: Event
    left: Semaphore
    done: Synchronized[int]


class Clients:
    """Client processes that are connected and wait for :meth:`go`."""

    def __init__(self, shared: _Shared, processes: Sequence[BaseProcess]) -> None:
        self._shared = shared
        self._processes = processes

    @property
    def pids(self) -> list[int]:
        """Their process ids."""
        return [process.pid for process in self._processes if process.pid is not None]

    @property
    def done(self) -> int:
        """Rollouts that have succeeded through them."""
        return self._shared.done.value

    def go(self) -> None:
        """Begin."""
        self._shared.go.set()

    def finish(self) -> float:
        """Let each client finish what it does; returns when the last had (by :func:`time.perf_counter`)."""
        self._shared.over.set()
        for _ in self._processes:
            assert self._shared.left.acquire(timeout=TIMEOUT_S), "a client process does not come to its end"
        return time.perf_counter()


@contextmanager
def clients(
    settings: Settings, transport: Transport, work: Work, processes: int, count: int, at_once: int = 1
) -> Generator[Clients]:
    """``count`` clients in so many processes, each with so many rollouts at once."""
    context = multiprocessing.get_context("spawn")
    shared = _Shared(
        context.Semaphore(0), context.Event(), context.Event(), context.Semaphore(0), context.Value("q", 0)
    )
    started = [
        context.Process(
            target=_main, args=(settings, transport, work, count // processes, at_once, shared), daemon=True
        )
        for _ in range(processes)
    ]
    for process in started:
        process.start()
    try:
        for _ in started:
            assert shared.ready.acquire(timeout=TIMEOUT_S), "a client process does not start"
        yield Clients(shared, started)
    finally:
        shared.go.set()
        shared.over.set()
        for process in started:
            process.join(TIMEOUT_S)
            process.kill()


async def open_store(settings: Settings, transport: Transport) -> LightningStore:
    """A started store."""
    store = KafkaLightningStore(settings) if transport == "kafka" else LightningStoreClient(settings=settings)
    await store.start()
    return store


def _main(settings: Settings, transport: Transport, work: Work, count: int, at_once: int, shared: _Shared) -> None:
    asyncio.run(_serve(settings, transport, work, count, at_once, shared))


async def _serve(
    settings: Settings, transport: Transport, work: Work, count: int, at_once: int, shared: _Shared
) -> None:
    store = await open_store(settings, transport)
    await store.dequeue_rollout("first")  # connects
    tune_gc()  # as a Runner's process does
    shared.ready.release()
    await asyncio.to_thread(shared.go.wait)
    client: Callable[..., Awaitable[Any]] = _run if work == "run" else _enqueue_and_run
    names = [f"{os.getpid()}-{number}" for number in range(count)]
    await asyncio.gather(*(client(store, name, shared) for name in names for _ in range(at_once)))
    shared.left.release()
    await store.close()


async def _run(store: LightningStore, worker_id: str, shared: _Shared) -> None:
    while not shared.over.is_set():
        await _succeed_with_one(store, worker_id, shared, DEQUEUE_TIMEOUT_S)


async def _enqueue_and_run(store: LightningStore, worker_id: str, shared: _Shared) -> None:
    while not shared.over.is_set():
        await store.enqueue_rollout(TASK)
        await _succeed_with_one(store, worker_id, shared, TIMEOUT_S)


async def _succeed_with_one(store: LightningStore, worker_id: str, shared: _Shared, timeout_s: float) -> None:
    rollout = await store.dequeue_rollout(worker_id, timeout_s=timeout_s)
    if rollout is None:
        return
    ended = await store.update_attempt(rollout.rollout_id, rollout.attempt.attempt_id, "succeeded")
    assert ended.status == "succeeded", ended
    with shared.done.get_lock():
        shared.done.value += 1
