"""The context of an algorithm: rollouts out, complete groups in, steps committed once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lightstream.runtime.settings import Settings
from lightstream.schemas.records import ResourcesRecord, StepOutcome
from lightstream.schemas.types import NamedResources

from ..loop.protocols import PolicyServers
from ..loop.steps import Steps
from ..rollouts.groups import Group
from ..rollouts.protocol import GroupSource
from ..rollouts.rollouts import Rollouts
from ..run.checkpoint import CheckpointFolder
from ..run.history import History
from ..run.progress import Progress
from ..run.report import StepReport
from ..run.run import Run
from ..run.tasks import Dataset


@dataclass(frozen=True, kw_only=True)
class AlgorithmContext:
    """Made by the Trainer; nothing of it is changed. Not thread-safe; its methods block.

    Attributes:
        rollouts: enqueued by step, and collected in groups.
        steps: committed, each with what it consumed and made.
        servers: those that sample for the agents.

    For functions, the methods and attributes of these are here too.
    """

    rollouts: Rollouts
    steps: Steps
    servers: PolicyServers

    def on(self, *, run: Run | None = None, source: GroupSource | None = None) -> AlgorithmContext:
        """The same with another run or source."""
        run = run or self.run
        rollouts = replace(self.rollouts, run=run, source=source or self.rollouts.source)
        return replace(self, rollouts=rollouts, steps=replace(self.steps, run=run, rollouts=rollouts))

    # --- the run

    @property
    def run(self) -> Run:
        """Names, settings and past."""
        return self.steps.run

    @property
    def settings(self) -> Settings:
        """The cluster, the topics, the folders."""
        return self.run.settings

    @property
    def run_id(self) -> str:
        """Name of the run, the same after a restart."""
        return self.run.run_id

    @property
    def trainer_id(self) -> str:
        """Name of the trainer, the same after a restart."""
        return self.run.trainer_id

    @property
    def seed(self) -> int:
        """For everything random."""
        return self.run.seed

    @property
    def history(self) -> History:
        """The committed steps; the ledger keeps it up to date."""
        return self.run.history

    @property
    def made_with(self) -> Mapping[str, str]:
        """The run's configuration; goes into its records."""
        return self.run.made_with

    @property
    def progress(self) -> Progress:
        """Lines of progress for people."""
        return self.run.progress

    @property
    def checkpoints(self) -> CheckpointFolder:
        """The folder of this run's checkpoints."""
        return self.run.checkpoints

    @property
    def last_step(self) -> int:
        """The last committed step, 0 before the first."""
        return self.run.last_step

    @property
    def resources(self) -> ResourcesRecord | None:
        """The latest resources of this run."""
        return self.run.resources

    def folder_of(self, address: str) -> Path:
        """See :meth:`.Run.folder_of`."""
        return self.run.folder_of(address)

    def now(self) -> int:
        """Nanoseconds since 1970."""
        return self.run.now()

    # --- rollouts

    @property
    def train_dataset(self) -> Dataset:
        """Tasks to train on."""
        return self.rollouts.train_dataset

    @property
    def val_dataset(self) -> Dataset | None:
        """Tasks to measure on."""
        return self.rollouts.val_dataset

    @property
    def source(self) -> GroupSource:
        """Where groups come from."""
        return self.rollouts.source

    @property
    def skipped(self) -> frozenset[str]:
        """See :attr:`.Rollouts.skipped`."""
        return self.rollouts.skipped

    def enqueue_step(
        self,
        step: int,
        *,
        tasks: int,
        rollouts_per_task: int,
        baselines: bool = False,
        resources_id: str | None = None,
    ) -> list[str]:
        """See :meth:`.Rollouts.enqueue_step`."""
        return self.rollouts.enqueue_step(
            step, tasks=tasks, rollouts_per_task=rollouts_per_task, baselines=baselines, resources_id=resources_id
        )

    def enqueue_further(
        self,
        count: int,
        *,
        rollouts_per_task: int,
        baselines: bool = False,
        besides: Collection[str] = (),
        resources_id: str | None = None,
    ) -> list[str]:
        """See :meth:`.Rollouts.enqueue_further`."""
        return self.rollouts.enqueue_further(
            count,
            rollouts_per_task=rollouts_per_task,
            baselines=baselines,
            besides=besides,
            resources_id=resources_id,
        )

    def validate(self, step: int, *, samples: int = 1, resources_id: str | None = None) -> list[Group]:
        """See :meth:`.Rollouts.validate`."""
        return self.rollouts.validate(step, samples=samples, resources_id=resources_id)

    def collect(self, group_ids: Collection[str], count: int | None = None) -> list[Group]:
        """See :meth:`.Rollouts.collect`."""
        return self.rollouts.collect(group_ids, count)

    # --- steps

    def resources_record(
        self,
        version: int,
        resources: NamedResources,
        *,
        model: str | None = None,
        checkpoint: Path | None = None,
        adapters: Mapping[str, Path] | None = None,
    ) -> ResourcesRecord:
        """See :meth:`.Steps.resources_record`."""
        return self.steps.resources_record(version, resources, model=model, checkpoint=checkpoint, adapters=adapters)

    def publish_resources(self, record: ResourcesRecord) -> None:
        """See :meth:`.Steps.publish`."""
        self.steps.publish(record)

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
        """See :meth:`.Steps.commit`."""
        return self.steps.commit(
            step,
            groups,
            started_unix_nano=started_unix_nano,
            metrics=metrics,
            resources=resources,
            checkpoint=checkpoint,
            triplets_used=triplets_used,
            not_trained=not_trained,
            outcome=outcome,
            cause=cause,
            steps=steps,
        )

    def keep_checkpoints(self, last: int, besides: Collection[int] = ()) -> None:
        """See :meth:`.Steps.keep_checkpoints`."""
        self.steps.keep_checkpoints(last, besides)
