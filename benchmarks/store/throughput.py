"""Rollouts per second, and the processor time of each process for one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import EnqueueRolloutRequest

from .clients import TASK, Clients, Transport, clients, open_store
from .processes import Processes, cpu_s_of

BATCH = 256
"""Rollouts of a training step: 32 tasks, 8 of each. As many times more where clients have several at once."""

POLL_INTERVAL_S = 0.002
TIMEOUT_S = 60.0


def one_at_a_time(
    place: Processes, *, processes: int, count: int, seconds: float, transport: Transport = "kafka"
) -> dict[str, float]:
    """``count`` clients, each in a loop: enqueue one, dequeue one, end it as succeeded."""
    with clients(place.settings, transport, "enqueue_and_run", processes, count) as group:
        group.go()
        asyncio.run(_until(lambda: group.done >= count))  # all are warm
        account = _Account(place, group)
        time.sleep(seconds)
        return account.closed(group.finish())


def batched(place: Processes, *, processes: int, count: int, seconds: float, at_once: int = 1) -> dict[str, float]:
    """One algorithm that enqueues in batches and keeps the queue filled; ``count`` clients dequeue and succeed.

    Args:
        at_once: rollouts that each client works on at a time.
    """
    with clients(place.settings, "kafka", "run", processes, count, at_once) as group:
        return asyncio.run(_batched(place, group, seconds, BATCH * at_once))


async def _batched(place: Processes, group: Clients, seconds: float, batch: int) -> dict[str, float]:
    """The next batch is asked for when no more than ``batch`` rollouts are not over."""
    store = await open_store(place.settings, "kafka")
    try:
        group.go()
        asked = await _ask_for(store, batch)
        await _until(lambda: group.done == batch)  # all are warm
        account = _Account(place, group)
        while account.seconds < seconds:
            asked += await _ask_for(store, batch)
            enough = asked - batch
            await _until(lambda enough=enough: group.done >= enough)  # type: ignore[misc]  # bound per batch
        await _until(lambda: group.done == asked)
        return account.closed(time.perf_counter())
    finally:
        await store.close()


async def _ask_for(store: LightningStore, count: int) -> int:
    return len(await store.enqueue_many_rollouts([EnqueueRolloutRequest(input=TASK) for _ in range(count)]))


async def _until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not reached():  # noqa: ASYNC110  # what is looked at belongs to other processes
            await asyncio.sleep(POLL_INTERVAL_S)


class _Account:
    """The counts since this was made."""

    def __init__(self, place: Processes, group: Clients) -> None:
        self._place = place
        self._group = group
        self._done = group.done
        self._cpu_s = self._used_s()
        self._began_s = time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._began_s

    def closed(self, ended_s: float) -> dict[str, float]:
        """Rollouts per second up to then; processor time of each process per rollout, in microseconds."""
        used = {name: seconds - self._cpu_s.get(name, 0.0) for name, seconds in self._used_s().items()}
        rollouts = self._group.done - self._done
        figures = {"rollouts_per_s": rollouts / (ended_s - self._began_s)}
        return figures | {f"{name}_cpu_us": seconds / rollouts * 1e6 for name, seconds in used.items()}

    def _used_s(self) -> dict[str, float]:
        """Of each process; the clients' together, and the algorithm's, which is this process."""
        in_clients = sum(cpu_s_of(pid) for pid in self._group.pids)
        return {"algorithm": time.process_time(), "clients": in_clients} | self._place.cpu_s()
