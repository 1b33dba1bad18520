"""The cost of trackers that fail for a training: ``python -m benchmarks.trackers``.

The same recorded rollouts through Kafka, alternately without trackers, and with three: one whose server is away, one
that raises after some steps, one that hangs. Steps per minute, and the time of this process's processors, from the
first commit to the last. Bar: 0.98 of the steps per minute.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from lightstream.trainers import make_tiny_model
from lightstream.trainers.run.trackers import TrackedStep, following

from .cluster import cluster
from .command import run
from .kafka_training import recorded_rollouts, through_kafka, verl_of

FINISH_S = 0.1
"""The end of a training waits so long for the one that hangs; it is not part of what is measured."""

RAISES_AT = 3


@dataclass
class _Failing:
    """A tracker that fails in the way that it is named after."""

    name: str
    package: str = "json"

    def open(self, run_id: str, made_with: Mapping[str, str], after_step: int) -> None:
        if self.name == "away":
            raise ConnectionError("nobody is there")

    def log(self, step: TrackedStep) -> None:
        if self.name == "hangs":
            threading.Event().wait()
        if step.step >= RAISES_AT:
            raise ValueError("no such metric")

    def close(self) -> None:
        """Nothing is open."""


def measure(*, pairs: int = 5, steps: int = 24) -> dict[str, float]:
    """Steps per minute with the trackers by those without, and the ratio of processor times."""
    following.FINISH_S = FINISH_S
    rates: list[float] = []
    processors: list[float] = []
    with cluster() as kafka:
        verl, recorded = verl_of(make_tiny_model(kafka.data_dir / "model"), steps), recorded_rollouts(steps)
        for pair in range(pairs):
            without = through_kafka(verl, kafka, recorded, f"without{pair}").seconds
            failing = [_Failing(name) for name in ("away", "raises", "hangs")]
            beside = through_kafka(verl, kafka, recorded, f"beside{pair}", failing).seconds
            rates.append(without[0] / beside[0])
            processors.append(beside[1] / without[1])
            print(f"pair {pair}: rate {rates[-1]:.3f}, processor {processors[-1]:.3f}", file=sys.stderr, flush=True)
    return {
        "rate_ratio": median(rates),
        "rate_ratio_min": min(rates),
        "rate_ratio_max": max(rates),
        "processor_ratio": median(processors),
        "processor_ratio_max": max(processors),
    }


def main() -> None:
    """Print the figures."""
    run(__doc__, measure, pairs=5, steps=24)


if __name__ == "__main__":
    main()
