"""Waiting for the queue in memory: a rollout that waits has woken somebody who still looks; a wait leaves nothing.

A thread enqueues while the event loop is held, so that the loop sees at once that a taker was woken and that it is
cancelled, or its time over.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any

import pytest

from lightstream.store_views.stores import InMemoryLightningStore
from tests.support.waiting import eventually

LONG_S = 600.0
POLLS = 50


async def _turns() -> None:
    """Tasks go as far as they can."""
    for _ in range(5):
        await asyncio.sleep(0)


def _enqueued_by_a_thread(store: InMemoryLightningStore, held_s: float = 0.0) -> None:
    """The loop of the caller is held until then, and for some time more."""
    thread = threading.Thread(target=lambda: asyncio.run(store.enqueue_rollout(1)))
    thread.start()
    thread.join()
    time.sleep(held_s)


async def test_a_taker_that_is_cancelled_just_then_passes_it_on() -> None:
    store = InMemoryLightningStore()
    first = asyncio.create_task(store.dequeue_rollout("first", timeout_s=LONG_S))
    await _turns()
    second = asyncio.create_task(store.dequeue_rollout("second", timeout_s=LONG_S))
    await _turns()
    _enqueued_by_a_thread(store)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    began = time.monotonic()
    taken = await second
    assert taken is not None
    assert time.monotonic() - began < LONG_S / 2, "it was not woken, but looked when its time was over"
    await store.close()


async def test_a_taker_whose_time_is_over_just_then_looks_once_more() -> None:
    store = InMemoryLightningStore()
    first = asyncio.create_task(store.dequeue_rollout("first", timeout_s=0.05))
    await _turns()
    _enqueued_by_a_thread(store, held_s=0.1)  # both have happened when the loop goes on
    assert await first is not None
    await store.close()


async def test_what_was_told_to_nobody_is_left_for_whoever_comes() -> None:
    store = InMemoryLightningStore()
    only = asyncio.create_task(store.dequeue_rollout("only", timeout_s=LONG_S))
    await _turns()
    _enqueued_by_a_thread(store)
    only.cancel()
    await asyncio.wait([only])
    assert await store.dequeue_rollout("next", timeout_s=LONG_S) is not None
    await store.close()


async def _cancelled(calls: list[Coroutine[Any, Any, Any]]) -> None:
    """Wait for all of these, and give up."""
    waits = [asyncio.create_task(call) for call in calls]
    await _turns()
    for wait in waits:
        wait.cancel()
    await asyncio.wait(waits)


def _futures() -> int:
    gc.collect()
    return sum(issubclass(type(item), Future) for item in gc.get_objects())


async def test_waits_in_vain_leave_nothing() -> None:
    store = InMemoryLightningStore()
    before = _futures()
    for _ in range(POLLS):
        assert await store.dequeue_rollout("w", timeout_s=0.0005) is None
        assert await store.get_latest_resources(timeout_s=0.0005) is None
        assert await store.get_resources_by_id("x", timeout_s=0.0005) is None
    await _cancelled([store.dequeue_rollout(timeout_s=LONG_S) for _ in range(POLLS)])
    await _cancelled([store.get_resources_by_id("x", timeout_s=LONG_S) for _ in range(POLLS)])
    # Calls that were cancelled end in the store's thread.
    await asyncio.to_thread(eventually, lambda: _futures() - before < POLLS / 2)
    await store.close()
