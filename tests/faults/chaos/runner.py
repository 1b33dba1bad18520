"""A Runner that may be killed: ``python -m tests.faults.chaos.runner <name>``.

It takes down each attempt that it begins, so that one which ran twice shows.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

from lightstream.producers import Runner, rollout
from lightstream.runtime.services import Service, announce, withdraw
from lightstream.runtime.settings import Settings
from lightstream.schemas.types import AttemptedRollout
from lightstream.store_views.stores import KafkaLightningStore

N_CONCURRENT = 4
FOLDER = "begun"


def task(seconds: float, failure_chance: float) -> dict[str, float]:
    """Work of so many seconds; that attempts fail so often, drawn by their ids."""
    return {"seconds": seconds, "failure_chance": failure_chance}


def attempts_begun(settings: Settings) -> list[str]:
    """Ids of all attempts that any Runner began."""
    return [line for file in (settings.data_dir / FOLDER).glob("*") for line in file.read_text("utf-8").splitlines()]


def main() -> None:
    asyncio.run(_run(sys.argv[1], Settings.load()))


async def _run(name: str, settings: Settings) -> None:
    notes = settings.data_dir / FOLDER / name
    notes.parent.mkdir(parents=True, exist_ok=True)

    @rollout
    async def work(task: Any, rollout: AttemptedRollout) -> float:
        _append(notes, rollout.attempt.attempt_id)
        await asyncio.sleep(task["seconds"])
        if random.Random(rollout.attempt.attempt_id).random() < task["failure_chance"]:
            raise RuntimeError("this attempt was to fail")
        return 1.0

    store = KafkaLightningStore(settings)
    await store.start()
    runner = Runner(store, work, settings=settings, n_concurrent=N_CONCURRENT, worker_id=name)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, runner.stop)
    announce(settings, Service(name, "", os.getpid(), time.time_ns()))
    await runner.run()
    await store.close()
    withdraw(settings, name, os.getpid())


def _append(file: Path, line: str) -> None:
    with file.open("a", encoding="utf-8") as notes:
        notes.write(f"{line}\n")


if __name__ == "__main__":
    main()
