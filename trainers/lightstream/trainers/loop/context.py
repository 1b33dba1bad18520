"""The context of an algorithm: rollouts out, complete groups in, steps committed once."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from lightstream.runtime.clock import NANOS_PER_SECOND, Clock, SystemClock
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import TrainingError
from lightstream.schemas.records import (
    ConsumedTrajectory,
    PartitionOffset,
    ResourcesRecord,
    StepOutcome,
    TrainingStep,
)
from lightstream.schemas.topics import TRAJECTORIES
from lightstream.schemas.types import Assembly, EnqueueRolloutRequest, NamedResources, RolloutConfig, RolloutMode

from ..rollouts.groups import Group, natural_order
from ..run.checkpoint import address_of, folder_of, run_checkpoints
from ..run.history import History, StepCommit
from ..run.progress import Progress
from ..run.report import StepObserver, StepReport, group_metrics
from ..run.tasks import (
    Dataset,
    further_group_id,
    further_index,
    sample_indices,
    step_group_id,
    step_requests,
    validation_group_id,
)
from .protocols import GroupSource, Ledger, PolicyServers

__all__ = ["AlgorithmContext", "CollectError"]

logger = logging.getLogger(__name__)

GROUP_SKIPPED = "group_skipped"
"""Reason recorded for a trajectory of a skipped group."""


COUNTED = (StepOutcome.UPDATED, StepOutcome.UNCHANGED)
"""Outcomes after which the step of this number is made."""


class CollectError(TrainingError):
    """No group was complete by the time every rollout must have ended. The next commit records them as skipped."""


class AlgorithmContext:
    """Made by the Trainer. Not thread-safe; its methods block.

    Attributes:
        settings: the cluster, the topics, the folders.
        run_id, trainer_id: names of this training, the same after a restart.
        train_dataset, val_dataset: tasks.
        history: what was committed; the ledger keeps it up to date.
        checkpoints: where this run's checkpoints are.
        seed: for everything random.
        rollout_config: deadlines and retries of the rollouts.
        progress: lines for whoever watches.
        made_with: what the run is made with; goes into its records.
        assembly: rules by which the run's rollouts become trajectories; ``None``: the worker's settings.
        initial_resources: what agents are given in every version, beside what the algorithm makes.
        source: where groups come from; :meth:`enqueue_step` and :meth:`collect` are made of it.
        servers: those that sample for the agents.
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
        source: GroupSource,
        ledger: Ledger,
        servers: PolicyServers,
        history: History,
        observers: Sequence[StepObserver] = (),
        clock: Clock | None = None,
        progress: Progress | None = None,
        made_with: Mapping[str, str] | None = None,
        assembly: Assembly | None = None,
        initial_resources: NamedResources | None = None,
    ) -> None:
        self.settings = settings
        self.run_id = run_id
        self.trainer_id = trainer_id
        self.train_dataset = train_dataset
        self.val_dataset = val_dataset
        self.seed = seed
        self.rollout_config = rollout_config
        self.history = history
        self.checkpoints = run_checkpoints(settings, run_id)
        self.progress = progress or Progress(None)
        self.made_with = dict(made_with or {})
        self.assembly = assembly
        self.initial_resources = dict(initial_resources or {})
        self.source = source
        self.servers = servers
        self._ledger = ledger
        self._observers = observers
        self._clock = clock or SystemClock()
        self._asked: dict[int, list[str]] = {}

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
        self,
        version: int,
        resources: NamedResources,
        *,
        model: str | None = None,
        checkpoint: Path | None = None,
        adapters: Mapping[str, Path] | None = None,
    ) -> ResourcesRecord:
        """A version of the resources, named ``<run_id>-v<version>``."""
        return ResourcesRecord(
            resources_id=f"{self.run_id}-v{version}",
            version=version,
            run_id=self.run_id,
            resources={
                name: resource.model_dump_json()
                for name, resource in (self.initial_resources | dict(resources)).items()
            },
            model=model,
            checkpoint_url=None if checkpoint is None else address_of(self.settings, checkpoint),
            adapters={name: address_of(self.settings, folder) for name, folder in (adapters or {}).items()},
            made_with=self.made_with if version == 0 else {},
            created_unix_nano=self.now(),
        )

    def folder_of(self, address: str) -> Path:
        """The folder of a checkpoint that a record names; it may be gone."""
        return folder_of(self.settings, address)

    def publish_resources(self, record: ResourcesRecord) -> None:
        """Make the first resources visible. Later ones are part of a step."""
        self._ledger.publish_resources(record)

    # --- rollouts

    def enqueue_step(
        self,
        step: int,
        *,
        tasks: int,
        rollouts_per_task: int,
        baselines: bool = False,
        resources_id: str | None = None,
    ) -> list[str]:
        """Enqueue the rollouts of a step; calling it again (after a restart) enqueues the same ones.

        A step of which tries were discarded gets new rollouts of the same tasks.

        Args:
            step: 1, 2, …; decides which tasks.
            tasks: how many tasks of the data set.
            rollouts_per_task: the size of each group.
            baselines: ask for one more rollout in each, of mode ``test``, that the others are compared with.
            resources_id: what the rollouts use; by default the latest of this run.

        Returns:
            The ids of the groups that are neither consumed nor skipped yet.
        """
        discarded, settled = self.history.discarded.get(step, 0), self.history.settled
        names = [step_group_id(self.run_id, step, i, discarded) for i in range(tasks)]
        if step >= settled.below_step:
            self._asked[step] = names
        if all(name in settled for name in names):
            return []
        indices = sample_indices(step, tasks, len(self.train_dataset), self.seed)
        wanted = {
            name: self.train_dataset[index] for name, index in zip(names, indices, strict=True) if name not in settled
        }
        self._enqueue(wanted, rollouts_per_task, "train", resources_id, baselines=baselines)
        return list(wanted)

    def enqueue_further(
        self,
        count: int,
        *,
        rollouts_per_task: int,
        baselines: bool = False,
        besides: Collection[str] = (),
        resources_id: str | None = None,
    ) -> list[str]:
        """Enqueue groups of further tasks, beside those of the steps; after a restart, those that were left first.

        Args:
            count: how many.
            rollouts_per_task, baselines: as for :meth:`enqueue_step`.
            besides: groups that are in progress already.
            resources_id: what the rollouts use; by default the latest of this run.

        Returns:
            The ids of the groups.
        """
        settled, besides = self.history.settled, frozenset(besides)
        wanted: dict[str, object] = {}
        for number in itertools.count(settled.below_further):
            name = further_group_id(self.run_id, number)
            if len(wanted) >= count:
                break
            if name not in settled and name not in besides:
                wanted[name] = self.train_dataset[further_index(number, len(self.train_dataset), self.seed)]
        self._enqueue(wanted, rollouts_per_task, "train", resources_id, baselines=baselines)
        return list(wanted)

    def validate(self, step: int, *, samples: int = 1, resources_id: str | None = None) -> list[Group]:
        """Roll out every validation task ``samples`` times and wait; empty without a validation data set.

        Groups that are skipped are left out, see :meth:`collect`; they may be all.
        """
        if self.val_dataset is None or len(self.val_dataset) == 0:
            return []
        wanted = {validation_group_id(self.run_id, step, i): self.val_dataset[i] for i in range(len(self.val_dataset))}
        self._enqueue(wanted, samples, "val", resources_id)
        return sorted(self.source.validation_groups(wanted), key=_by_name)

    def collect(self, group_ids: Collection[str], count: int | None = None) -> list[Group]:
        """Wait for complete groups and take them: they must be part of the next commit.

        A group that is not complete although each of its rollouts must have ended is skipped: it is not returned, and
        the next commit records what came of it, without a weight. Groups that are skipped already are passed over.

        Args:
            group_ids: which groups to take from.
            count: how many; the others stay for later. By default all.

        Raises:
            CollectError: every one of them is skipped.
        """
        count = len(group_ids) if count is None else count
        groups: list[Group] = []
        if count:
            for group in self.source.groups(sorted(group_ids, key=natural_order)):
                groups.append(group)
                if len(groups) == count:
                    break
        if group_ids and not groups and self.skipped.issuperset(group_ids):
            raise CollectError(
                f"none of {len(group_ids)} groups is complete after {self.source.limit_s:g} s without a rollout.",
                next_step="`lightstream status` shows whether the worker and the Runners are running.",
            )
        return sorted(groups, key=_by_name)

    @property
    def skipped(self) -> frozenset[str]:
        """Groups of this run that are skipped, of earlier steps too."""
        return self.source.skipped

    # --- steps

    def commit(
        self,
        step: int,
        groups: Sequence[Group],
        *,
        started_unix_nano: int,
        metrics: Mapping[str, float] | None = None,
        resources: ResourcesRecord | None = None,
        checkpoint: Path | None = None,
        triplets_used: Mapping[tuple[str, str], int] | None = None,
        not_trained: Mapping[tuple[str, str], Mapping[str, int]] | None = None,
        outcome: StepOutcome = StepOutcome.UPDATED,
        cause: str = "",
        steps: int = 0,
    ) -> StepReport:
        """Write the step, its resources and what it consumed in one transaction, then tell the observers.

        Args:
            step: ``last_step + 1``; ``last_step`` for what was measured after it.
            groups: everything taken since the last commit. What came of skipped groups goes in by itself.
            started_unix_nano: when the step began.
            metrics: numbers to keep; finite ones are kept.
            resources: what the step made, with its checkpoint already on the disk.
            checkpoint: a folder to go on from, already on the disk; by default that of the resources.
            triplets_used: (rollout_id, attempt_id) -> calls that entered the batch with a weight; by default all.
            not_trained: (rollout_id, attempt_id) -> reason -> calls that had none.
            outcome: what the step did to the weights. After ``discarded``, the step of this number is still to be made.
            cause: why rows that could be trained on were not learned from, in words.
            steps: how many steps are planned.

        Raises:
            TrainingError: not committed, or another process took over; the ledger shows which on the next start.
        """
        if step != self.last_step + (outcome is not StepOutcome.MEASURED):
            raise TrainingError(
                f"step {step} cannot follow step {self.last_step}.", next_step="Commit every step, in order."
            )
        skipped = self.source.take_skipped()
        all_metrics = group_metrics(groups) | dict(metrics or {})
        if skipped.names:
            all_metrics["groups/skipped"] = float(len(skipped.names))
        all_metrics |= self.source.metrics()
        low_water = sorted(self.source.low_water().items())
        folder = None if resources is None else resources.checkpoint_url
        ended = self.now()
        record = TrainingStep(
            trainer_id=self.trainer_id,
            run_id=self.run_id,
            step=step,
            outcome=outcome,
            cause=cause,
            steps_planned=steps,
            made_with=self.made_with,
            resources_id=None if resources is None else resources.resources_id,
            checkpoint_url=folder if checkpoint is None else address_of(self.settings, checkpoint),
            consumed=_consumed(groups, triplets_used, not_trained or {}) + _without_weight(skipped.came),
            skipped_groups=skipped.names,
            settled_below=self._settled_below(step if outcome in COUNTED else self.last_step),
            metrics={name: value for name, value in all_metrics.items() if math.isfinite(value)},
            low_water=[PartitionOffset(topic=TRAJECTORIES.name, partition=p, offset=o) for p, o in low_water],
            started_unix_nano=started_unix_nano,
            ended_unix_nano=ended,
        )
        self._ledger.commit(StepCommit(record, resources, self.source.consumer_group))
        report = StepReport(
            step=step,
            steps=steps,
            outcome=outcome,
            mean_reward=all_metrics.get("reward/mean", math.nan),
            logprob_diff_max=all_metrics.get("logprob_diff_max", math.nan),
            rollouts=sum(len(group.trajectories) for group in groups),
            calls=sum(len(trajectory.triplets) for group in groups for trajectory in group.trajectories),
            rows=int(all_metrics.get("batch/rows", 0)),
            tokens=int(all_metrics.get("batch/tokens", 0)),
            seconds=(ended - started_unix_nano) / NANOS_PER_SECOND,
            resources_id=None if self.resources is None else self.resources.resources_id,
            metrics=dict(record.metrics),
        )
        self.progress.step(report)
        for observer in self._observers:
            try:
                observer(report)
            except Exception:  # a user's code: the step is committed, and training goes on
                logger.exception("observer %r failed at step %d", observer, step)
                self.progress.say(f"An observer failed at step {step}; the log has its traceback.")
        return report

    def keep_checkpoints(self, last: int, besides: Collection[int] = ()) -> None:
        """Delete all checkpoints but those of the ``last`` committed steps, and of the steps in ``besides``."""
        steps = sorted(self.history.checkpoints)
        kept = {*steps[-last:], *self.history.checkpoints.keys() & set(besides)}
        self.history.checkpoints = {step: self.history.checkpoints[step] for step in kept}
        self.checkpoints.keep_only(self.folder_of(url) for url in self.history.checkpoints.values())

    def _settled_below(self, last_step: int) -> int:
        """Return the first step with open groups; at most ``last_step`` + 1, or the first that was not asked for."""
        settled = self.history.settled
        step = settled.below_step
        while step <= last_step and step in self._asked and all(name in settled for name in self._asked[step]):
            del self._asked[step]
            step += 1
        return step

    def _enqueue(
        self,
        tasks: Mapping[str, object],
        count: int,
        mode: RolloutMode,
        resources_id: str | None,
        *,
        baselines: bool = False,
    ) -> None:
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
                assembly=self.assembly,
                baseline=baselines,
            )
        self.source.ask(requests)


def _by_name(group: Group) -> tuple[tuple[int, int, str], ...]:
    return natural_order(group.group_id)


def _consumed(
    groups: Sequence[Group],
    triplets_used: Mapping[tuple[str, str], int] | None,
    not_trained: Mapping[tuple[str, str], Mapping[str, int]],
) -> list[ConsumedTrajectory]:
    return [
        ConsumedTrajectory(
            rollout_id=trajectory.rollout_id,
            attempt_id=trajectory.attempt_id,
            revision=trajectory.revision,
            group_id=group.group_id,
            triplet_count=len(trajectory.triplets)
            if triplets_used is None
            else triplets_used.get((trajectory.rollout_id, trajectory.attempt_id), 0),
            not_trained=dict(not_trained.get((trajectory.rollout_id, trajectory.attempt_id), {})),
        )
        for group in groups
        for trajectory in group.trajectories
    ]


def _without_weight(skipped: Sequence[Group]) -> list[ConsumedTrajectory]:
    return [consumed.model_copy(update={"not_trained": {GROUP_SKIPPED: 1}}) for consumed in _consumed(skipped, {}, {})]
