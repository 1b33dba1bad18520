"""A process that runs attempts."""

from __future__ import annotations

from typing import Any

from .json_model import JsonModel
from .status import WorkerStatus

__all__ = ["Worker"]


class Worker(JsonModel):
    """A worker as it last reported (times in seconds since 1970).

    ``status`` follows from what it does in the store: ``busy`` from a rollout handed out until the attempt's end,
    then ``idle``; ``unknown`` after an attempt that it lost.
    """

    worker_id: str
    status: WorkerStatus = "unknown"
    heartbeat_stats: dict[str, Any] | None = None
    last_heartbeat_time: float | None = None
    last_dequeue_time: float | None = None
    last_busy_time: float | None = None
    last_idle_time: float | None = None
    current_rollout_id: str | None = None
    current_attempt_id: str | None = None
