"""Traffic: rollouts that nobody enqueued, in windows that are a function of the log."""

from __future__ import annotations

from ...run.windows_past import WindowsPast
from .log_order import Arrival, LogOrder
from .source import TrafficSource
from .windows import LateTrajectory, Window, WindowRule, Windows, event_time

__all__ = [
    "Arrival",
    "LateTrajectory",
    "LogOrder",
    "TrafficSource",
    "Window",
    "WindowRule",
    "Windows",
    "WindowsPast",
    "event_time",
]
