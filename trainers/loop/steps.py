"""The steps of a run: the inputs and products of each, committed once."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lightstream.runtime.clock import NANOS_PER_SECOND
from lightstream.schemas.errors import TrainingError
from lightstream.schemas.records import (
    ConsumedTrajectory,
    LearningWindow,
    PartitionOffset,
    ResourcesRecord,
    StepOutcome,
    TrainingStep,
)
from lightstream.schemas.topics import TRAJECTORIES
from lightstream.schemas.types import NamedResources

from ..rollouts.groups import Group
from ..rollouts.rollouts import Rollouts
from ..run.checkpoint import address_of
from ..run.history import StepCommit
from ..run.report import StepObserver, StepReport
from ..run.run import Run
from .metrics import group_metrics
from .protocols import Ledger

logger = logging.getLogger(__name__)

GROUP_SKIPPED = "group_skipped"
"""Reason recorded for a trajectory of a skipped group."""


COUNTED = (StepOutcome.UPDATED, StepOutcome.UNCHANGED)
"""Outcomes after which the step of this number is made."""


@dataclass(frozen=True, kw_only=True)
class Steps:
    """The steps of one run, and its versions. Not thread-safe; its methods block.

    Attributes:
        run: whose steps.
        ledger: where they are written.
        rollouts: what they consume.
        observers: called after each commit, with its report.
        initial_resources: what agents are given in every version, beside what the algorithm makes.
    """

    run: Run
    ledger: Ledger
    rollouts: Rollouts
    observers: Sequence[StepObserver] = ()
    initial_resources: NamedResources = field(default_factory=dict)

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
        run = self.run
        return ResourcesRecord(
            resources_id=f"{run.run_id}-v{version}",
            version=version,
            run_id=run.run_id,
            resources={
                name: resource.model_dump_json()
                for name, resource in (self.initial_resources | dict(resources)).items()
            },
            model=model,
            checkpoint_url=None if checkpoint is None else address_of(run.settings, checkpoint),
            adapters={name: address_of(run.settings, folder) for name, folder in (adapters or {}).items()},
            made_with=dict(run.made_with) if version == 0 else {},
            created_unix_nano=run.now(),
        )

    def publish(self, record: ResourcesRecord) -> None:
        """Make the first resources visible. Later ones are part of a step."""
        self.ledger.publish_resources(record)

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
        window: LearningWindow | None = None,
    ) -> StepReport:
        """Write the step, its resources and its inputs in one transaction, then tell the observers.

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
            window: of a learner, the window of traffic that the groups are.

        Raises:
            TrainingError: not committed, or another process took over; the ledger shows which on the next start.
        """
        run, rollouts = self.run, self.rollouts
        if step != run.last_step + (outcome is not StepOutcome.MEASURED):
            raise TrainingError(
                f"step {step} cannot follow step {run.last_step}.", next_step="Commit every step, in order."
            )
        skipped = rollouts.source.take_skipped()
        all_metrics = group_metrics(groups) | dict(metrics or {})
        if skipped.names:
            all_metrics["groups/skipped"] = float(len(skipped.names))
        all_metrics |= rollouts.source.metrics()
        if none := sum(_is_no_number(name, value) for name, value in all_metrics.items()):
            all_metrics["metrics/not_finite"] = float(none)
        low_water = sorted(rollouts.source.low_water().items())
        folder = None if resources is None else resources.checkpoint_url
        record = TrainingStep(
            trainer_id=run.trainer_id,
            run_id=run.run_id,
            step=step,
            outcome=outcome,
            cause=cause,
            steps_planned=steps,
            made_with=dict(run.made_with),
            resources_id=None if resources is None else resources.resources_id,
            checkpoint_url=folder if checkpoint is None else address_of(run.settings, checkpoint),
            consumed=_consumed(groups, triplets_used, not_trained or {}) + _without_weight(skipped.came),
            skipped_groups=skipped.names,
            settled_below=rollouts.settled_below(step if outcome in COUNTED else run.last_step),
            metrics={name: value for name, value in all_metrics.items() if math.isfinite(value)},
            low_water=[PartitionOffset(topic=TRAJECTORIES.name, partition=p, offset=o) for p, o in low_water],
            window=window,
            started_unix_nano=started_unix_nano,
            ended_unix_nano=run.now(),
        )
        self.ledger.commit(StepCommit(record, resources, rollouts.source.consumer_group))
        report = _report(record, groups, all_metrics, run.resources)
        self._tell(report)
        return report

    def keep_checkpoints(self, last: int, besides: Collection[int] = ()) -> None:
        """Delete all checkpoints except the ``last`` committed steps' and the ones of steps in ``besides``."""
        run, history = self.run, self.run.history
        steps = sorted(history.checkpoints)
        kept = {*steps[-last:], *history.checkpoints.keys() & set(besides)}
        history.checkpoints = {step: history.checkpoints[step] for step in kept}
        run.checkpoints.keep_only(run.folder_of(url) for url in history.checkpoints.values())

    def _tell(self, report: StepReport) -> None:
        progress = self.run.progress
        progress.step(report)
        for observer in self.observers:
            try:
                observer(report)
            except Exception:  # a user's code: the step is committed, and training goes on
                logger.exception("observer %r failed at step %d", observer, report.step)
                progress.say(f"An observer failed at step {report.step}; the log has its traceback.")


def _report(
    record: TrainingStep, groups: Sequence[Group], metrics: Mapping[str, float], resources: ResourcesRecord | None
) -> StepReport:
    """What observers are told of a committed step."""
    return StepReport(
        step=record.step,
        steps=record.steps_planned,
        outcome=record.outcome,
        mean_reward=metrics.get("reward/mean", math.nan),
        logprob_diff_max=metrics.get("logprob_diff_max", math.nan),
        rollouts=sum(len(group.trajectories) for group in groups),
        calls=sum(len(trajectory.triplets) for group in groups for trajectory in group.trajectories),
        rows=int(metrics.get("batch/rows", 0)),
        tokens=int(metrics.get("batch/tokens", 0)),
        seconds=(record.ended_unix_nano - record.started_unix_nano) / NANOS_PER_SECOND,
        resources_id=None if resources is None else resources.resources_id,
        metrics=dict(record.metrics),
    )


def _is_no_number(metric: str, value: float) -> bool:
    """Whether a metric should be a number and is none, which the ledger leaves out.

    A comparison that was not made has NaN.
    """
    not_compared = "logprob_" in metric and math.isnan(value)
    return not math.isfinite(value) and not not_compared


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
