"""Latency of single calls on an idle store, and of ``wait_for_rollouts`` after the last end."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Coroutine, Iterable
from multiprocessing.connection import Connection
from typing import Any

from lightstream.runtime.settings import Settings

from .clients import TASK, open_store
from .processes import Processes

IDS = 256
TIMEOUT_S = 60.0


def single_calls(place: Processes, calls: int) -> dict[str, dict[str, float]]:
    """Enqueue, dequeue with work waiting, and the end of an attempt, one call at a time."""
    return asyncio.run(_single_calls(place.settings, calls))


def waking(place: Processes, rounds: int) -> dict[str, dict[str, float]]:
    """256 rollouts, one process that waits for all, and one that ends them.

    Counted is from where the last end was called for, and from where its verdict was known there, to where the waiter
    had its answer. Needs a view.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    waiter = context.Process(target=_wait_again_and_again, args=(place.settings, theirs), daemon=True)
    waiter.start()
    try:
        return asyncio.run(_waking(place.settings, ours, rounds))
    finally:
        ours.send(None)
        waiter.join(TIMEOUT_S)
        waiter.kill()


async def _single_calls(settings: Settings, calls: int) -> dict[str, dict[str, float]]:
    store = await open_store(settings, "kafka")
    try:
        await store.enqueue_rollout(TASK)
        warm = await store.dequeue_rollout("w", timeout_s=TIMEOUT_S)
        assert warm is not None
        await store.update_attempt(warm.rollout_id, "latest", "succeeded")
        enqueue, rollouts = await _timed(store.enqueue_rollout(TASK) for _ in range(calls))
        dequeue, taken = await _timed(store.dequeue_rollout("w", timeout_s=TIMEOUT_S) for _ in range(calls))
        assert {rollout and rollout.rollout_id for rollout in taken} == {rollout.rollout_id for rollout in rollouts}
        update, _ = await _timed(store.update_attempt(r.rollout_id, "latest", "succeeded") for r in rollouts)
    finally:
        await store.close()
    timed = {"enqueue_rollout": enqueue, "dequeue_rollout, work waiting": dequeue, "update_attempt": update}
    return {name: _percentiles(times) for name, times in timed.items()}


async def _waking(settings: Settings, waiter: Connection, rounds: int) -> dict[str, dict[str, float]]:
    store = await open_store(settings, "kafka")
    since_call: list[float] = []
    since_verdict: list[float] = []
    try:
        for _ in range(rounds):
            rollouts = await asyncio.gather(*(store.start_rollout(TASK) for _ in range(IDS)))
            *others, last = (rollout.rollout_id for rollout in rollouts)
            waiter.send((store.positions(), [*others, last]))
            assert await asyncio.to_thread(waiter.recv) == "waiting"
            await asyncio.gather(*(store.update_attempt(rollout_id, "latest", "succeeded") for rollout_id in others))
            called_s = time.perf_counter()
            await store.update_attempt(last, "latest", "succeeded")
            judged_s = time.perf_counter()
            woken_s = await asyncio.to_thread(waiter.recv)
            since_call.append(woken_s - called_s)
            since_verdict.append(woken_s - judged_s)
    finally:
        await store.close()
    after_call, after_verdict = _percentiles(since_call), _percentiles(since_verdict)
    return {
        "wait_for_rollouts on 256 ids, after the last end was called for": after_call,
        "wait_for_rollouts on 256 ids, after its verdict": after_verdict,
    }


def _wait_again_and_again(settings: Settings, pipe: Connection) -> None:
    asyncio.run(_wait_for_all(settings, pipe))


async def _wait_for_all(settings: Settings, pipe: Connection) -> None:
    store = await open_store(settings, "kafka")
    while (asked := await asyncio.to_thread(pipe.recv)) is not None:
        positions, ids = asked
        store.see(positions)  # else it may never have heard of them
        waiting = asyncio.create_task(store.wait_for_rollouts(rollout_ids=ids, timeout=TIMEOUT_S))
        await asyncio.sleep(0)
        pipe.send("waiting")
        ended = await waiting
        woken_s = time.perf_counter()
        assert len(ended) == len(ids)
        pipe.send(woken_s)
    await store.close()


async def _timed(calls: Iterable[Coroutine[Any, Any, Any]]) -> tuple[list[float], list[Any]]:
    """Seconds of each call, one after another, and what they returned."""
    times: list[float] = []
    results: list[Any] = []
    for call in calls:
        began_s = time.perf_counter()
        results.append(await call)
        times.append(time.perf_counter() - began_s)
    return times, results


def _percentiles(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(1000 * value for value in seconds)
    return {"p50_ms": ordered[len(ordered) // 2], "p99_ms": ordered[int(len(ordered) * 0.99)]}
