"""A Runner on a machine whose clock is wrong: ``python -m tests.e2e.skewed_runner SKEW_S RUN_ID REWARD ROLLOUTS``."""

from __future__ import annotations

import sys
import time

if __name__ == "__main__":  # before anything takes its own reference to the clock
    _true_ns, _skew_ns = time.time_ns, int(float(sys.argv[1]) * 1e9)
    time.time_ns = lambda: _true_ns() + _skew_ns
    time.time = lambda: time.time_ns() / 1e9

import asyncio

from lightstream.producers import Runner, emit_annotation, rollout
from lightstream.runtime.settings import Settings
from lightstream.store_views.stores import KafkaLightningStore


async def run(run_id: str, reward: float, rollouts: int) -> None:
    """Roll out so many tasks of the run; each is worth ``reward``."""

    @rollout
    async def agent(task: int) -> float:
        emit_annotation({"task": task})
        return reward

    settings = Settings.load()
    store = KafkaLightningStore(settings)
    await store.start()
    try:
        runner = Runner(store, agent, run_id=run_id, settings=settings, n_concurrent=8, instrument=False)
        await runner.run(max_rollouts=rollouts)
    finally:
        await store.close()


if __name__ == "__main__":
    asyncio.run(run(sys.argv[2], float(sys.argv[3]), int(sys.argv[4])))
