"""A trainer's memory and restart by the length of its run: ``python -m benchmarks.long_run``.

Synthetic steps (8 groups of 4 rollouts, one call each, one step ahead) are committed to Kafka one after another by the
product's own waves, context and ledger; there is no model. A process for each length; its resident memory is read after
the last step. Then new processes open the ledger, and the fastest of three counts. Bars: memory after 20,000 steps at
most 1.1 times that after 2,000, a restart after 20,000 at most twice that after 200.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import psutil

from lightstream.runtime.settings import Settings
from lightstream.schemas.packing import pack_float32, pack_int32
from lightstream.schemas.records import AttemptStatus, RolloutMode, RolloutStatus, Trajectory, TripletRecord
from lightstream.schemas.types import EnqueueRolloutRequest
from lightstream.trainers.ledger.kafka import KafkaLedger
from lightstream.trainers.loop.options import LoopOptions
from lightstream.trainers.loop.recovery import Recovery
from lightstream.trainers.loop.steps import Steps
from lightstream.trainers.loop.waves import Waves
from lightstream.trainers.rollouts.batch import BatchArrays
from lightstream.trainers.rollouts.groups.source import LoggedGroups, LoggedTrajectory
from lightstream.trainers.rollouts.rollouts import Rollouts
from lightstream.trainers.rollouts.trajectory_source import TrajectorySource
from lightstream.trainers.run.run import Run

from .cluster import cluster
from .command import run

LENGTHS = (200, 2_000, 20_000)
RUN = "long"
MEBIBYTE = 1 << 20
RESTARTS = 3


class _Rollouts:
    """A log that has each rollout at once, and forgets what was read."""

    undecodable = 0
    of_other_runs = 0

    def __init__(self, consumer_group: object) -> None:
        self.consumer_group = consumer_group
        self._offset = 0
        self._coming: list[EnqueueRolloutRequest] = []

    def enqueue(self, requests: Sequence[EnqueueRolloutRequest]) -> None:
        self._coming += requests

    def start(self, low_water: Mapping[int, int]) -> None:
        pass

    def poll(self, timeout_s: float) -> list[LoggedTrajectory]:
        coming, self._coming = self._coming, []
        found = [LoggedTrajectory(_trajectory(r), 0, self._offset + place) for place, r in enumerate(coming)]
        self._offset += len(coming)
        return found

    def whole(self, trajectory: Trajectory) -> Trajectory:
        return trajectory

    def end_offsets(self) -> dict[int, int]:
        return self.next_offsets

    def has_read(self, ends: Mapping[int, int]) -> bool:
        return True

    @property
    def next_offsets(self) -> dict[int, int]:
        return {0: self._offset}


class _Untrained:
    """An engine without a model."""

    images = None

    def update(
        self,
        arrays: BatchArrays,
        *,
        policy_version: int | None = None,
        seed: Sequence[int] = (0,),
        policy: str = "",
        step: int | None = None,
        gap_max: float = math.inf,
    ) -> dict[str, float]:
        return {}

    def kl_to_reference(self, arrays: BatchArrays) -> npt.NDArray[np.float64]:
        return np.zeros(len(arrays.response_mask))

    def save(self, folder: Path) -> None:
        pass

    def save_weights(self, folder: Path) -> None:
        pass

    def saved_in(self, folder: Path) -> None:
        pass

    def close(self) -> None:
        pass


def measure(*, steps: int = LENGTHS[-1]) -> dict[str, float]:
    """Mebibytes and seconds by the number of steps, and their ratios."""
    figures: dict[str, float] = {}
    lengths = [length for length in LENGTHS if length < steps] + [steps]
    with cluster() as kafka:
        for length in lengths:
            settings = kafka.settings(folder=str(length))
            figures |= _child(settings, "train", length)
            figures[f"restart_s_{length}_steps"] = min(
                _child(settings, "open", length)["open_s"] for _ in range(RESTARTS)
            )
    last = lengths[-1]
    figures["memory_ratio"] = figures[f"mib_{last}_steps"] / figures[f"mib_{lengths[-2]}_steps"]
    figures["restart_ratio"] = figures[f"restart_s_{last}_steps"] / figures[f"restart_s_{lengths[0]}_steps"]
    return figures


def _child(settings: Settings, action: str, steps: int) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", "from benchmarks.long_run import child; child()", action, str(steps)],
        env=settings.to_environment(),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def child() -> None:
    """Train or open, as the command line says, and print figures."""
    action, steps = sys.argv[-2], int(sys.argv[-1])
    settings = Settings.load()
    ledger = KafkaLedger(settings, trainer_id=RUN, run_id=RUN)
    started = time.perf_counter()
    history = ledger.open()
    if action == "open":
        if history.last_step != steps:
            raise SystemExit(f"the ledger ends at step {history.last_step}, not {steps}")
        print(json.dumps({"open_s": time.perf_counter() - started}))
        return
    options = LoopOptions(steps=steps, tasks_per_step=8, rollouts_per_task=4, steps_ahead=1)
    log = _Rollouts(TrajectorySource(settings, ledger.group_id, run_id=RUN).consumer_group)
    of_run = Run(settings=settings, run_id=RUN, trainer_id=RUN, history=history)
    source = LoggedGroups(log, RUN, settled=history.settled, limit_s=60.0, enqueue=log.enqueue)
    rollouts = Rollouts(run=of_run, source=source, train_dataset=list(range(1000)))
    _train(options, Steps(run=of_run, ledger=ledger, rollouts=rollouts))
    mib = psutil.Process().memory_info().rss / MEBIBYTE
    seconds = time.perf_counter() - started
    print(json.dumps({f"mib_{steps}_steps": mib, f"steps_per_s_{steps}_steps": steps / seconds}))


def _train(options: LoopOptions, steps: Steps) -> None:
    of_run = steps.run
    steps.publish(steps.resources_record(0, {}, checkpoint=of_run.checkpoints.write(0, lambda _: None)))
    recovery, waves = Recovery(options, steps), Waves(options, steps.rollouts)
    for step in range(1, options.steps + 1):
        waves.ask(step, again=False)
        recovery.save_if_due(_Untrained())
        groups = waves.take(step)
        folder = of_run.checkpoints.write(step, lambda _: None)
        steps.commit(
            step,
            groups.kept + groups.silent,
            started_unix_nano=of_run.now(),
            metrics={"loss": 0.0},
            resources=steps.resources_record(step, {}, model=f"policy@{step}", checkpoint=folder),
            steps=options.steps,
        )
        recovery.keep()


def _trajectory(request: EnqueueRolloutRequest) -> Trajectory:
    rollout_id = request.rollout_id or ""
    return Trajectory(
        rollout_id=rollout_id,
        attempt_id=f"{rollout_id}-a1",
        attempt_sequence=1,
        run_id=RUN,
        mode=RolloutMode.TRAIN,
        group_id=request.group_id,
        group_size=request.group_size or 1,
        status=AttemptStatus.SUCCEEDED,
        rollout_status=RolloutStatus.SUCCEEDED,
        final=True,
        reward=1.0,
        triplets=[
            TripletRecord(
                call_index=0,
                span_id="0" * 16,
                trace_id="0" * 32,
                policy_version=0,
                prompt_token_ids=pack_int32([1, 2]),
                response_token_ids=pack_int32([3]),
                response_logprobs=pack_float32([-1.0]),
                response_mask=b"\x01",
                reward=1.0,
            )
        ],
        call_count=1,
    )


def main() -> None:
    """Measure and print."""
    run(__doc__, measure, steps=LENGTHS[-1])


if __name__ == "__main__":
    main()
