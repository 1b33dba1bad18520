"""Health and metrics of a process that runs agents. Needs prometheus-client, which the plain install lacks."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from prometheus_client import Counter, Gauge, Histogram

from lightstream.runtime.health_port import served_health
from lightstream.runtime.settings import Settings
from lightstream.schemas.types import AttemptedRollout

from .hooks import Hook
from .outcome import Outcome

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
    """Answer ``/metrics``, ``/healthz`` and ``/readyz`` where ``settings.runner_port`` names a port
    (:mod:`lightstream.runtime.health_port`).

    Yields:
        The hooks that count, for the Runners of this process; none where nothing is served.

    Raises:
        ServiceUnavailableError: none of the ports is free.
    """
    with served_health(settings, name="runner", setting="runner_port") as url:
        yield [] if url is None else [AttemptMetrics()]
