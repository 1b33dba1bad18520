"""What an algorithm works with: rollouts out, complete groups in, steps committed once."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from lightstream.schemas import records
from lightstream.schemas.clock import NANOS_PER_SECOND, Clock
from lightstream.schemas.errors import TrainingError
from lightstream.schemas.records import (
    ConsumedTrajectory,
    PartitionOffset,
    ResourcesRecord,
    TrainingStep,
)
from lightstream.schemas.settings import Settings
from lightstream.schemas.topics import TRAJECTORIES
from lightstream.schemas.types import EnqueueRolloutRequest, NamedResources, RolloutConfig, RolloutMode

from ..checkpoint import CheckpointFolder
from ..groups import Group, GroupCollector
from ..ledger import History, StepCommit, TrainingLedger
from ..report import StepObserver, StepReport, group_metrics
from ..store_thread import StoreThread
from ..tasks import Dataset, sample_indices, step_group_id, step_requests, validation_group_id
from ..trajectory_source import TrajectorySource

__all__ = ["AlgorithmContext", "CollectError"]

logger = logging.getLogger(__name__)

POLL_TIMEOUT_S = 0.2
PATIENCE_S = 30.0
"""How long a silent wait may last before a log line says what it waits for."""

STALL_MARGIN_S = 120.0


class CollectError(TrainingError):
    """Groups were not complete by the time every rollout must have ended."""


class AlgorithmContext:
    """Made by the Trainer. Not thread-safe; its methods block.

    Attributes:
        settings: the cluster, the topics, the folders.
        run_id, trainer_id: names of this training, the same after a restart.
        train_dataset, val_dataset: tasks.
        history: what was committed before; kept up to date by :meth:`commit`.
        checkpoints: where this run's checkpoints are.
        seed: for everything random.
        rollout_config: deadlines and retries of the rollouts.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        run_id: str,
        trainer_id: str,
        train_dataset: Dataset,
        val_dataset: Dataset | None,
        seed: int,
        rollout_config: RolloutConfig,
        store: StoreThread,
        ledger: TrainingLedger,
        source: TrajectorySource,
        history: History,
        observers: Sequence[StepObserver],
        clock: Clock,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings = settings
        self.run_id = run_id
        self.trainer_id = trainer_id
        self.train_dataset = train_dataset
        self.val_dataset = val_dataset
        self.seed = seed
        self.rollout_config = rollout_config
        self.history = history
        self.checkpoints = CheckpointFolder(settings.data_dir.absolute() / "checkpoints" / run_id)
        self._store = store
        self._ledger = ledger
        self._source = source
        self._observers = observers
        self._clock = clock
        self._check = check
        self._train = GroupCollector(run_id, history.consumed)
        self._validation = GroupCollector(run_id, modes=(records.RolloutMode.VAL,))
        self._expected_validation: set[str] = set()

    @property
    def last_step(self) -> int:
        """The last committed step, 0 before the first."""
        return self.history.last_step

    @property
    def resources(self) -> ResourcesRecord | None:
        """The latest resources of this run."""
        return self.history.resources

    def now(self) -> int:
        """Nanoseconds since 1970."""
        return self._clock.now_unix_nano()

    # --- resources

    def resources_record(
        self, version: int, resources: NamedResources, *, model: str | None = None, checkpoint: Path | None = None
    ) -> ResourcesRecord:
        """A version of the resources, named ``<run_id>-v<version>``."""
        return ResourcesRecord(
            resources_id=f"{self.run_id}-v{version}",
            version=version,
            run_id=self.run_id,
            resources={name: resource.model_dump_json() for name, resource in resources.items()},
            model=model,
            checkpoint_url=None if checkpoint is None else str(checkpoint),
            created_unix_nano=self.now(),
        )

    def publish_resources(self, record: ResourcesRecord) -> None:
        """Make the first resources visible. Later ones are part of a step."""
        self._ledger.publish_resources(record)
        self.history.add_resources(record)

    # --- rollouts

    def enqueue_step(
        self, step: int, *, tasks: int, rollouts_per_task: int, resources_id: str | None = None
    ) -> list[str]:
        """Enqueue the rollouts of a step; calling it again (after a restart) enqueues the same ones.

        Args:
            step: 1, 2, …; decides which tasks.
            tasks: how many tasks of the data set.
            rollouts_per_task: the size of each group.
            resources_id: what the rollouts use; by default the latest of this run.

        Returns:
            The ids of the groups that are not consumed yet.
        """
        names = [step_group_id(self.run_id, step, i) for i in range(tasks)]
        if self.history.consumed_groups.issuperset(names):
            return []
        indices = sample_indices(step, tasks, len(self.train_dataset), self.seed)
        wanted = {
            name: self.train_dataset[index]
            for name, index in zip(names, indices, strict=True)
            if name not in self.history.consumed_groups
        }
        self._enqueue(wanted, rollouts_per_task, "train", resources_id)
        return list(wanted)

    def validate(self, step: int, *, resources_id: str | None = None) -> list[Group]:
        """Roll out every validation task once and wait; empty without a validation data set."""
        if self.val_dataset is None or len(self.val_dataset) == 0:
            return []
        wanted = {validation_group_id(self.run_id, step, i): self.val_dataset[i] for i in range(len(self.val_dataset))}
        self._expected_validation = set(wanted)
        self._enqueue(wanted, 1, "val", resources_id)
        return self._collect(self._validation, list(wanted), len(wanted))

    def collect(self, group_ids: Collection[str], count: int | None = None) -> list[Group]:
        """Wait for complete groups and take them: they must be part of the next commit.

        Args:
            group_ids: which groups to take from.
            count: how many; the first to be complete are taken, the others stay for later. By default all.

        Raises:
            CollectError: they are not complete although every rollout must have ended by now.
        """
        return self._collect(self._train, group_ids, len(group_ids) if count is None else count)

    # --- steps

    def commit(
        self,
        step: int,
        groups: Sequence[Group],
        *,
        started_unix_nano: int,
        metrics: Mapping[str, float] | None = None,
        resources: ResourcesRecord | None = None,
        triplets_used: Mapping[tuple[str, str], int] | None = None,
        steps: int = 0,
    ) -> StepReport:
        """Write the step, its resources and what it consumed in one transaction, then tell the observers.

        Args:
            step: ``last_step + 1``.
            groups: everything taken since the last commit.
            started_unix_nano: when the step began.
            metrics: numbers to keep; finite ones are kept.
            resources: what the step made, with its checkpoint already on the disk.
            triplets_used: (rollout_id, attempt_id) -> calls that entered the batch; by default all.
            steps: how many steps are planned, for observers.

        Raises:
            TrainingError: not committed, or another process took over; the ledger shows which on the next start.
        """
        if step != self.last_step + 1:
            raise TrainingError(
                f"step {step} cannot follow step {self.last_step}.", next_step="Commit every step, in order."
            )
        all_metrics = group_metrics(groups) | dict(metrics or {})
        if self._source.undecodable:
            all_metrics["trajectories/undecodable"] = float(self._source.undecodable)
        for arrival, count in self._train.arrivals.items():
            all_metrics[f"trajectories/{arrival.value}"] = float(count)
        ended = self.now()
        record = TrainingStep(
            trainer_id=self.trainer_id,
            run_id=self.run_id,
            step=step,
            resources_id=None if resources is None else resources.resources_id,
            checkpoint_url=None if resources is None else resources.checkpoint_url,
            consumed=_consumed(groups, triplets_used),
            metrics={name: value for name, value in all_metrics.items() if math.isfinite(value)},
            low_water=[PartitionOffset(topic=TRAJECTORIES.name, partition=p, offset=o) for p, o in self._low_water()],
            started_unix_nano=started_unix_nano,
            ended_unix_nano=ended,
        )
        self._ledger.commit(StepCommit(record, resources, self._source.consumer_group))
        self.history.add_step(record, TRAJECTORIES.name)
        if resources is not None:
            self.history.add_resources(resources)
        self._expected_validation.clear()
        report = StepReport(
            step=step,
            steps=steps,
            mean_reward=all_metrics.get("reward/mean", math.nan),
            logprob_diff_max=all_metrics.get("logprob_diff_max", math.nan),
            rollouts=len(record.consumed),
            rows=int(all_metrics.get("batch/rows", 0)),
            tokens=int(all_metrics.get("batch/tokens", 0)),
            seconds=(ended - started_unix_nano) / NANOS_PER_SECOND,
            resources_id=None if self.resources is None else self.resources.resources_id,
            metrics=dict(record.metrics),
        )
        for observer in self._observers:
            observer(report)
        return report

    def keep_checkpoints(self, last: int) -> None:
        """Delete all checkpoints but those of the ``last`` committed steps."""
        kept = sorted(self.history.checkpoints)[-last:]
        self.history.checkpoints = {step: self.history.checkpoints[step] for step in kept}
        self.checkpoints.keep_only(Path(url) for url in self.history.checkpoints.values())

    def _enqueue(self, tasks: Mapping[str, object], count: int, mode: RolloutMode, resources_id: str | None) -> None:
        if resources_id is None and self.resources is not None:
            resources_id = self.resources.resources_id
        requests: list[EnqueueRolloutRequest] = []
        for group_id, task in tasks.items():
            requests += step_requests(
                group_id,
                task,
                count=count,
                run_id=self.run_id,
                mode=mode,
                resources_id=resources_id,
                config=self.rollout_config,
            )
        self._store.call(self._store.store.enqueue_many_rollouts(requests))

    def _collect(self, collector: GroupCollector, group_ids: Collection[str], count: int) -> list[Group]:
        wanted = set(group_ids)
        started = quiet_since = time.monotonic()
        limit_s = self._longest_rollout_s()
        while len(ready := collector.complete(wanted)) < count:
            self._check()
            arrived = self._source.poll(POLL_TIMEOUT_S)
            for logged in arrived:
                trajectory = logged.trajectory
                if trajectory.run_id == self.run_id:
                    trajectory = self._source.whole(trajectory)
                if trajectory.mode is records.RolloutMode.VAL:
                    if (trajectory.group_id or "") in self._expected_validation:
                        self._validation.add(trajectory, logged.partition, logged.offset)
                else:
                    self._train.add(trajectory, logged.partition, logged.offset)
            now = time.monotonic()
            if arrived:
                started = quiet_since = now
            elif now - started > limit_s:
                raise CollectError(
                    f"{_named(collector.missing(wanted))} after {limit_s:g} s without a trajectory.",
                    next_step="`lightstream status` shows whether the worker and the Runners are running.",
                )
            elif now - quiet_since > PATIENCE_S:
                quiet_since = now
                logger.warning(
                    "waiting for trajectories for %.0f s: %s", now - started, _named(collector.missing(wanted))
                )
        return collector.take(ready[:count])

    def _longest_rollout_s(self) -> float:
        """After this long without any trajectory, every rollout must have ended."""
        attempt_s = self.rollout_config.timeout_seconds or self.settings.rollout_timeout_s
        return attempt_s * self.rollout_config.max_attempts + STALL_MARGIN_S

    def _low_water(self) -> list[tuple[int, int]]:
        low = self._validation.low_water(self._train.low_water(self._source.next_offsets))
        return sorted(low.items())


def _named(missing: Mapping[str, int]) -> str:
    shown = ", ".join(f"{group} ({count} here)" for group, count in list(missing.items())[:3])
    return f"{len(missing)} groups are not complete: {shown}{', …' if len(missing) > 3 else ''}"


def _consumed(groups: Sequence[Group], triplets_used: Mapping[tuple[str, str], int] | None) -> list[ConsumedTrajectory]:
    return [
        ConsumedTrajectory(
            rollout_id=trajectory.rollout_id,
            attempt_id=trajectory.attempt_id,
            revision=trajectory.revision,
            group_id=group.group_id,
            triplet_count=len(trajectory.triplets)
            if triplets_used is None
            else triplets_used.get((trajectory.rollout_id, trajectory.attempt_id), 0),
        )
        for group in groups
        for trajectory in group.trajectories
    ]
