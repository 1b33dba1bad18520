"""Trainings as programs that end, or do not, in each way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager

from lightstream.runtime.settings import Settings

PROGRAM = """
import sys, time
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import TrainingError
from lightstream.trainers import Trainer
from tests.trainers.support.instant_store import InstantStore

how = sys.argv[1]
settings = Settings.load()

def algorithm(context):
    print("begun", flush=True)
    if how == "failed":
        raise TrainingError("all 64 rollouts of step 4 failed.", next_step="See `lightstream explain`.")
    if how == "raised":
        raise ValueError("three\\nlines \\ud800")
    if how == "updating":  # Python's own work, which lets no other thread run while it likes
        ends = time.monotonic() + 600
        while time.monotonic() < ends:
            sum(range(1_000_000))
    if how != "finished":
        time.sleep(600)

Trainer(
    algorithm=algorithm, n_runners=0, trainer_id=how, settings=settings, store=InstantStore(settings), progress=False
).fit(None, [1])
"""

EXPECTED = {
    "finished": "finished",
    "failed": "failed",
    "raised": "failed",
    "terminated": "stopped",
    "interrupted": "stopped",
    "killed": "lost",
    "hung": "lost",
    "updating": "running",
}
"""Name of the run -> its state."""

SIGNALS = {
    "terminated": signal.SIGTERM,
    "interrupted": signal.SIGINT,
    "killed": signal.SIGKILL,
    "hung": signal.SIGSTOP,
}


@contextmanager
def trainings(settings: Settings) -> Generator[None]:
    """One training of each kind, each of which has begun, and got its signal; what still runs is killed at the end."""
    running = {
        how: subprocess.Popen(
            [sys.executable, "-c", PROGRAM, how],
            env=os.environ | settings.to_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for how in EXPECTED
    }
    try:
        for how, process in running.items():
            assert process.stdout is not None
            assert process.stdout.readline() == b"begun\n", how
            if how in SIGNALS:
                process.send_signal(SIGNALS[how])
        yield
    finally:
        for process in running.values():
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
