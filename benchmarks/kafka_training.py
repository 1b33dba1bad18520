"""Training from Kafka by training from memory: ``python -m benchmarks.kafka_training``.

The same recorded rollouts, seed and model, alternately: through the real topics, ledger and transactions, and from a
file with the ledger in memory. Time of the wall and of this process's processors, from the first commit to the last.
Bars: rewards equal, other metrics within 1e-5, 1.25 times the wall, 1.15 times the processor.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from lightstream.runtime.kafka import KafkaPublisher, run_headers
from lightstream.runtime.settings import Settings
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.records import Trajectory
from lightstream.schemas.topics import TRAJECTORIES
from lightstream.schemas.types import EnqueueRolloutRequest, Rollout
from lightstream.trainers import VERL, StepReport, Tracker, Trainer, make_tiny_model, train_recorded
from lightstream.trainers.algorithms.recorded import write_recording

from .cluster import Cluster, cluster
from .command import run
from .update import rollout_of

RUN, TASKS, SAMPLES = "measured", 8, 8
TIMES = ("seconds/", "tokens_per_second/")


class _Store(LightningStore):
    """Rollouts that were made already: asking for them makes nothing."""

    async def enqueue_many_rollouts(self, rollouts: Sequence[EnqueueRolloutRequest]) -> list[Rollout]:
        return [Rollout(rollout_id=r.rollout_id or "", input=r.input, start_time=0.0) for r in rollouts]


class StepClock:
    """Times and metrics of the steps."""

    def __init__(self) -> None:
        self.reports: list[StepReport] = []
        self.marks: list[tuple[float, float]] = []

    def __call__(self, report: StepReport) -> None:
        self.reports.append(report)
        self.marks.append((time.perf_counter(), time.process_time()))

    @property
    def seconds(self) -> tuple[float, float]:
        """Of wall and of processor, from the first commit to the last."""
        (wall, processor), (wall_last, processor_last) = self.marks[0], self.marks[-1]
        return wall_last - wall, processor_last - processor


def measure(*, pairs: int = 5, steps: int = 12) -> dict[str, float]:
    """Ratios of each pair's times, and the largest difference of a metric."""
    walls: list[float] = []
    processors: list[float] = []
    difference = rewards_differ = 0.0
    with cluster() as kafka:
        model = make_tiny_model(kafka.data_dir / "model")
        recorded = recorded_rollouts(steps)
        write_recording(recorded, kafka.data_dir / "run.jsonl")
        verl = verl_of(model, steps)
        for pair in range(pairs):
            through, memory = through_kafka(verl, kafka, recorded, f"k{pair}"), _from_memory(verl, kafka, f"m{pair}")
            ratios = [a / b for a, b in zip(through.seconds, memory.seconds, strict=True)]
            walls.append(ratios[0])
            processors.append(ratios[1])
            print(f"pair {pair}: wall {ratios[0]:.3f}, processor {ratios[1]:.3f}", file=sys.stderr, flush=True)
            for a, b in zip(through.reports, memory.reports, strict=True):
                rewards_differ += a.mean_reward != b.mean_reward
                difference = max(difference, *_differences(a.metrics, b.metrics))
    return {
        "wall_ratio": median(walls),
        "wall_ratio_max": max(walls),
        "processor_ratio": median(processors),
        "processor_ratio_max": max(processors),
        "steps_with_other_rewards": rewards_differ,
        "largest_difference_of_a_metric": difference,
    }


def recorded_rollouts(steps: int) -> list[Trajectory]:
    """Rollouts of so many steps of the run."""
    chance = np.random.default_rng(0)
    return [
        _member(rollout_of(f"{RUN}-s{step}-g{group}-{i}", float(chance.random()), chance), step)
        for step in range(1, steps + 1)
        for group in range(TASKS)
        for i in range(SAMPLES)
    ]


def _member(rollout: Trajectory, step: int) -> Trajectory:
    """The rollout as one of its group, sampled by the policy of its step."""
    triplets = [triplet.model_copy(update={"policy_version": step - 1}) for triplet in rollout.triplets]
    group = rollout.rollout_id.rpartition("-")[0]
    of_run = {"run_id": RUN, "group_id": group, "group_size": SAMPLES, "triplets": triplets}
    return rollout.model_copy(update=of_run)


def verl_of(model: Path, steps: int) -> VERL:
    """The algorithm for the rollouts of so many steps."""
    return VERL(model=model, steps=steps, tasks_per_step=TASKS, rollouts_per_task=SAMPLES, threads=1)


def through_kafka(
    verl: VERL, kafka: Cluster, recorded: Sequence[Trajectory], folder: str, trackers: Sequence[Tracker] = ()
) -> StepClock:
    """Train on the rollouts through the real topics; times and metrics of the steps."""
    settings = kafka.settings(folder=folder, proxy_url="http://127.0.0.1:9")  # nobody calls it
    publisher = KafkaPublisher(settings)
    for trajectory in recorded:
        publisher.publish(TRAJECTORIES, trajectory.group_id or "", trajectory, headers=run_headers(RUN))
    publisher.flush(60)
    publisher.close()
    clock = StepClock()
    _trainer(verl, settings, clock, trackers).fit(None, ["task"])
    return clock


def _trainer(verl: VERL, settings: Settings, clock: StepClock, trackers: Sequence[Tracker]) -> Trainer:
    return Trainer(
        algorithm=verl,
        n_runners=0,
        settings=settings,
        store=_Store(),
        trainer_id=RUN,
        observers=[clock],
        trackers=trackers,
        progress=False,
    )


def _from_memory(verl: VERL, kafka: Cluster, folder: str) -> StepClock:
    clock = StepClock()
    train_recorded(verl, kafka.data_dir / "run.jsonl", Path(kafka.data_dir / folder), observers=[clock])
    return clock


def _differences(ours: dict[str, Any], theirs: dict[str, Any]) -> list[float]:
    """Of every metric that is no time, relative; infinite where one has it alone."""
    names = {name for name in ours.keys() | theirs.keys() if not name.startswith(TIMES)}
    found = [0.0]
    for name in names:
        a, b = ours.get(name, math.inf), theirs.get(name, -math.inf)
        if not (math.isnan(a) and math.isnan(b)):
            found.append(abs(a - b) / max(abs(b), 1.0))
    return found


def main() -> None:
    """Print the figures."""
    run(__doc__, measure, pairs=5, steps=12)


if __name__ == "__main__":
    main()
