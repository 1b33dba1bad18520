"""Starts, restarts and stops Runner processes."""

from __future__ import annotations

import itertools
import logging
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from lightstream.runtime.processes import RestartPolicy, Supervisor
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import TrainingError

from .process import DRAIN_TIMEOUT_S, EXIT_MARGIN_S, RunnerJob

if TYPE_CHECKING:
    from lightstream.producers import Hook, OtelTracer

logger = logging.getLogger(__name__)

RESTARTS = RestartPolicy(backoff_s_min=0.5, backoff_s_max=30.0, healthy_after_s=60.0, ends_in_a_row_max=6)
"""Half a minute of trying; an agent that cannot even be imported should not take longer to say so."""


class RunnerProcesses:
    """``n`` processes, each with a Runner of ``n_concurrent`` attempts. A context manager.

    Raises:
        TrainingError: the agent cannot be handed to another process. Nothing was started.
    """

    def __init__(
        self,
        settings: Settings,
        agent: Any,
        *,
        n: int,
        n_concurrent: int,
        name: str,
        run_id: str,
        hooks: Sequence[Hook] = (),
        tracer: Callable[[], OtelTracer] | None = None,
    ) -> None:
        packed = _packed(agent, hooks, tracer) if n else b""
        number = itertools.count(1)

        def job() -> RunnerJob:
            """The work of the next process; each has a worker id of its own."""
            worker_id = f"{name}-{socket.gethostname()}-{os.getpid()}-{next(number)}"
            return RunnerJob(list(sys.path), packed, n_concurrent, worker_id, run_id)

        environment = os.environ | settings.to_environment()
        self._units = [_RunnerProcess(f"runner process {index}", environment, job) for index in range(n)]
        self._supervisor = Supervisor(RESTARTS)

    def __enter__(self) -> RunnerProcesses:
        self._supervisor.start(self._units)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pids(self) -> list[int]:
        """The processes that run now."""
        return [pid for unit in self._units if (pid := unit.pid) is not None]

    def check(self) -> None:
        """Raise if the Runners keep dying.

        Raises:
            TrainingError: one of them ended too often in a row.
            ServiceUnavailableError: one of them cannot be kept running.
        """
        self._supervisor.check()
        for name, status in self._supervisor.given_up.items():
            raise TrainingError(
                f"{name} ended {(RESTARTS.ends_in_a_row_max or 0) + 1} times in a row, last with {status}.",
                next_step="Its output above says why; run the agent by itself first.",
            )

    def stop(self) -> None:
        """Let running attempts finish for a while, then end every process. None is left when this returns."""
        self._supervisor.stop(together=True)


class _RunnerProcess:
    """One Runner process as a supervisor's unit. It belongs to our terminal and our process group, and its standard
    input, which ends with us, tells it that we are gone."""

    def __init__(self, name: str, environment: Mapping[str, str], job: Callable[[], RunnerJob]) -> None:
        self._name = name
        self._environment = environment
        self._job = job
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        return self._name

    @property
    def pid(self) -> int | None:
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def start(self) -> None:
        process = subprocess.Popen(
            [sys.executable, "-c", "from lightstream.trainers.run.runners.process import main; main()"],
            env=self._environment,
            stdin=subprocess.PIPE,
        )
        self._process = process
        assert process.stdin is not None  # noqa: S101  # it was asked for
        with suppress(BrokenPipeError):  # it ended at once: the supervisor sees that
            process.stdin.write(pickle.dumps(self._job()))
            process.stdin.flush()

    def look_after(self, why_ended: Callable[[str], None]) -> None:
        """It announces nothing."""

    def answers(self, timeout_s: float) -> bool:
        return True  # it has no port

    def wait(self) -> int | None:
        process = self._process
        if process is None:
            return None
        status = process.wait()
        _close_input(process)
        return status

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self.wait()

    def stop(self) -> None:
        process = self._process
        if process is None:
            return
        process.terminate()
        try:
            process.wait(DRAIN_TIMEOUT_S + EXIT_MARGIN_S)
        except subprocess.TimeoutExpired:
            logger.warning("%s (%s) did not end in time; it is killed", self._name, process.pid)
            process.kill()
        self.wait()


def _close_input(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with suppress(OSError):  # it is gone, and so is what it did not read
            process.stdin.close()


def _packed(agent: Any, hooks: Sequence[Hook], tracer: Callable[[], OtelTracer] | None) -> bytes:
    """Agent and hooks as another process needs them: by value if their own program defines them, else by name."""
    import cloudpickle  # type: ignore[import-untyped]  # it has no types

    try:
        packed: bytes = cloudpickle.dumps((agent, tuple(hooks), tracer))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise TrainingError(
            f"the agent {agent!r}{' with its hooks' if hooks else ''}{' and its tracer' if tracer else ''} "
            f"cannot be handed to a Runner process: {error}.",
            next_step="Create objects that cannot be copied (clients, locks, open files) within the agent, or run "
            "Runners yourself and pass n_runners=0.",
        ) from error
    return packed
