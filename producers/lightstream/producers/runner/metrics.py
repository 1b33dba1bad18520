"""Metrics of a process that runs agents, for Prometheus. Needs prometheus-client, which the plain install lacks."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from prometheus_client import Counter, Gauge, Histogram, start_http_server

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.schemas.types import AttemptedRollout

from .hooks import Hook
from .outcome import Outcome

__all__ = ["PORTS", "AttemptMetrics", "served_metrics"]

PORTS = 32
"""Processes of one machine that can be told apart by their port."""

ENDED = Counter("lightstream_runner_attempts", "Attempts that ended here, by how.", ["status"])
RUNNING = Gauge("lightstream_runner_attempts_running", "Attempts that run here now.")
SECONDS = Histogram(
    "lightstream_runner_attempt_seconds",
    "Time from the start of an attempt to its report.",
    buckets=(0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000),
)


class AttemptMetrics(Hook):
    """Counts the attempts of the Runners that it is given to."""

    def __init__(self) -> None:
        self._began_s: dict[str, float] = {}

    async def on_rollout_start(self, *, rollout: AttemptedRollout, **_: Any) -> None:
        self._began_s[rollout.attempt.attempt_id] = time.perf_counter()
        RUNNING.set(len(self._began_s))

    async def on_rollout_end(self, *, rollout: AttemptedRollout, outcome: Outcome, **_: Any) -> None:
        began_s = self._began_s.pop(rollout.attempt.attempt_id, None)
        RUNNING.set(len(self._began_s))
        ENDED.labels(outcome.status).inc()
        if began_s is not None:
            SECONDS.observe(time.perf_counter() - began_s)


@contextmanager
def served_metrics(settings: Settings) -> Generator[list[Hook]]:
    """Answer ``/metrics`` at the first free port from ``settings.runner_port`` on; not at all where that is 0.

    Yields:
        The hooks that count, for the Runners of this process.

    Raises:
        ServiceUnavailableError: none of :data:`PORTS` ports is free.
    """
    if settings.runner_port == 0:
        yield []
        return
    server, thread = _start(settings)
    try:
        yield [AttemptMetrics()]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _start(settings: Settings) -> Any:
    first, last = settings.runner_port, min(settings.runner_port + PORTS, 1 << 16) - 1
    for port in range(first, last + 1):
        try:
            return start_http_server(port, settings.host)
        except OSError as error:
            if port == last:
                raise ServiceUnavailableError(
                    f"cannot tell metrics at {settings.host}, ports {first} to {last}: {error.strerror}.",
                    next_step="Choose other ports with LIGHTSTREAM_RUNNER_PORT (0: no metrics), or LIGHTSTREAM_HOST.",
                ) from error
    raise AssertionError("there is a last port")
