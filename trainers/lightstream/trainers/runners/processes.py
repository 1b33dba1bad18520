"""Starts, restarts and stops Runner processes."""

from __future__ import annotations

import logging
import os
import pickle
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import TrainingError

from .process import DRAIN_TIMEOUT_S, EXIT_MARGIN_S, RunnerJob

__all__ = ["RunnerProcesses"]

logger = logging.getLogger(__name__)

BACKOFF_S, BACKOFF_S_MAX = 0.5, 30.0
"""Before a Runner process that died is started again; doubles while it keeps dying."""

STEADY_S = 60.0
"""A process that lived this long starts the back-off afresh."""

DEATHS_IN_A_ROW_MAX = 6
"""Half a minute of trying; an agent that cannot even be imported should not take longer to say so."""
WATCH_INTERVAL_S = 0.5


class RunnerProcesses:
    """``n`` processes, each with a Runner of ``n_concurrent`` attempts. A context manager.

    Raises:
        TrainingError: the agent cannot be handed to another process. Nothing was started.
    """

    def __init__(self, settings: Settings, agent: Any, *, n: int, n_concurrent: int, name: str, run_id: str) -> None:
        self._environment = os.environ | settings.to_environment()
        self._agent = _packed(agent) if n else b""
        self._n = n
        self._n_concurrent = n_concurrent
        self._name = name
        self._run_id = run_id
        self._stopping = threading.Event()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._started: dict[int, float] = {}
        self._deaths: dict[int, int] = {}
        self._due: dict[int, float] = {}
        self._generation = 0
        self._watcher: threading.Thread | None = None
        self._given_up: str | None = None

    def __enter__(self) -> RunnerProcesses:
        if self._n:
            for index in range(self._n):
                self._start(index)
            self._watcher = threading.Thread(target=self._watch, name="lightstream-runner-watch", daemon=True)
            self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pids(self) -> list[int]:
        """The processes that run now."""
        return [process.pid for process in self._processes.values() if process.poll() is None]

    def check(self) -> None:
        """Raise if the Runners keep dying.

        Raises:
            TrainingError: one of them died too often in a row.
        """
        if self._given_up is not None:
            raise TrainingError(self._given_up, next_step="Its output above says why; run the agent by itself first.")

    def stop(self) -> None:
        """Let running attempts finish for a while, then end every process. None is left when this returns."""
        self._stopping.set()
        if self._watcher is not None:
            self._watcher.join()
        for process in self._processes.values():
            process.terminate()
        deadline = time.monotonic() + DRAIN_TIMEOUT_S + EXIT_MARGIN_S
        for process in self._processes.values():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                logger.warning("runner process %s did not end in time; it is killed", process.pid)
                process.kill()
                process.wait()
            _close_input(process)
        self._processes.clear()

    def _start(self, index: int) -> None:
        self._generation += 1
        worker_id = f"{self._name}-{socket.gethostname()}-{os.getpid()}-{self._generation}"
        job = RunnerJob(list(sys.path), self._agent, self._n_concurrent, worker_id, self._run_id)
        process = subprocess.Popen(
            [sys.executable, "-c", "from lightstream.trainers.runners.process import main; main()"],
            env=self._environment,
            stdin=subprocess.PIPE,
        )
        assert process.stdin is not None  # noqa: S101  # it was asked for
        with suppress(BrokenPipeError):  # it ended at once: the watcher sees that
            process.stdin.write(pickle.dumps(job))
            process.stdin.flush()
        self._processes[index] = process
        self._started[index] = time.monotonic()

    def _watch(self) -> None:
        while not self._stopping.wait(WATCH_INTERVAL_S):
            now = time.monotonic()
            for index, process in list(self._processes.items()):
                if process.poll() is None or self._stopping.is_set() or self._given_up is not None:
                    continue
                if index not in self._due:
                    self._note_death(index, process, now)
                elif now >= self._due[index]:
                    del self._due[index]
                    self._start(index)

    def _note_death(self, index: int, process: subprocess.Popen[bytes], now: float) -> None:
        _close_input(process)
        deaths = 1 if now - self._started[index] > STEADY_S else self._deaths.get(index, 0) + 1
        self._deaths[index] = deaths
        if deaths > DEATHS_IN_A_ROW_MAX:
            self._given_up = f"runner process {index} ended {deaths} times in a row, last with {process.returncode}."
            return
        pause_s = min(BACKOFF_S * 2 ** (deaths - 1), BACKOFF_S_MAX)
        self._due[index] = now + pause_s
        logger.warning("runner process %s ended with %s; again in %g s", process.pid, process.returncode, pause_s)


def _close_input(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with suppress(OSError):  # it is gone, and so is what it did not read
            process.stdin.close()


def _packed(agent: Any) -> bytes:
    """The agent for another process. What its own program defines goes by value, what it imports by name."""
    import cloudpickle  # type: ignore[import-untyped]  # it has no types

    try:
        packed: bytes = cloudpickle.dumps(agent)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise TrainingError(
            f"the agent {agent!r} cannot be handed to a Runner process: {error}.",
            next_step="Create what cannot be copied (clients, locks, open files) within the agent, or run Runners "
            "yourself and pass n_runners=0.",
        ) from error
    return packed
