"""Series of a training for Prometheus: of its last committed step. No label says which run: the port does."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .report import StepReport

if TYPE_CHECKING:
    from prometheus_client.core import Metric


class TrainingSeries:
    """An observer of steps that keeps the last one. For any thread."""

    def __init__(self) -> None:
        self._last: StepReport | None = None
        self._committed_s = time.time()

    def __call__(self, report: StepReport) -> None:
        """Keep a committed step."""
        self._last, self._committed_s = report, time.time()

    def readings(self) -> Iterable[Metric]:
        """As :data:`lightstream.runtime.metrics.Readings`; values that the last step lacks are left out."""
        from prometheus_client.core import GaugeMetricFamily

        values = {
            "lightstream_training_last_step_unix_seconds": (
                "Commit of the last step; at first the start.",
                self._committed_s,
            )
        }
        if (report := self._last) is not None:
            values |= {
                "lightstream_training_step": ("Last committed step.", report.step),
                "lightstream_training_step_seconds": ("Time that it took.", report.seconds),
                "lightstream_training_reward_mean": ("Mean reward of its trajectories.", report.mean_reward),
                "lightstream_training_logprob_gap": (
                    "Largest difference between actor and model server in the log-probability of a token.",
                    report.logprob_diff_max,
                ),
                "lightstream_training_staleness_max": (
                    "Versions of the policy between the oldest token trained on and the actor.",
                    report.metrics.get("batch/staleness_max", math.nan),
                ),
                "lightstream_training_rows": ("Sequences trained on.", report.rows),
            }
        return [GaugeMetricFamily(name, text, value) for name, (text, value) in values.items() if not math.isnan(value)]
