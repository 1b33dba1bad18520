"""A trainer's past, a pure fold over the ledger's records, and a step's addition to it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from lightstream.schemas.errors import TrainingError
from lightstream.schemas.records import Record, ResourcesRecord, StepOutcome, TrainingStep
from lightstream.schemas.topics import TRAJECTORIES

from .settled import SettledGroups
from .windows_past import WindowsPast

MEAN_REWARDS_KEPT = 1000

START_ANEW = "Restore the topic, or start a new run with another run_id and trainer_id."


@dataclass(frozen=True, slots=True)
class StepCommit:
    """The records that one transaction of the ledger makes visible together.

    Attributes:
        step: the step, with the trajectories that it consumed and the offsets below which nothing is needed any more.
        resources: what it made; ``None``: nothing new.
        consumer_group: whose offsets these are, as Kafka's client says it; ``None`` without Kafka.
    """

    step: TrainingStep
    resources: ResourcesRecord | None
    consumer_group: object = None


@dataclass(slots=True)
class History:
    """The past of one trainer, in a size that depends on the last steps alone, not on how many there were.

    Attributes:
        last_step: the last committed step, 0 before the first.
        ended_unix_nano: when the last record was written.
        settled: the groups that steps consumed or skipped.
        low_water: partition of ``trajectories`` -> offset to read from; missing partitions from their beginning.
        resources_id: the resources that a step named last.
        resources: the latest resources of the run, version 0 included; ``None`` before the first.
        checkpoints: step -> folder of its weights; step 0 is that of the first resources. Whoever deletes folders
            forgets them here.
        updates: the steps that changed the weights, in order; whoever keeps checkpoints forgets those before one.
        discarded: step -> how many tries of it were discarded, of steps whose groups are not all settled.
        mean_rewards: of the last :data:`MEAN_REWARDS_KEPT` committed steps; NaN where one had none.
        measured: whether the policy was validated after the last step.
        windows: of a learner, the windows of traffic that its steps consumed.
        made_with: what the run is made with, see ``ResourcesRecord.made_with``.
    """

    last_step: int = 0
    ended_unix_nano: int = 0
    settled: SettledGroups = field(default_factory=SettledGroups)
    low_water: dict[int, int] = field(default_factory=dict[int, int])
    resources_id: str | None = None
    resources: ResourcesRecord | None = None
    checkpoints: dict[int, str] = field(default_factory=dict[int, str])
    updates: list[TrainingStep] = field(default_factory=list[TrainingStep])
    discarded: dict[int, int] = field(default_factory=dict[int, int])
    mean_rewards: list[float] = field(default_factory=list[float])
    measured: bool = False
    windows: WindowsPast = field(default_factory=WindowsPast)
    made_with: dict[str, str] = field(default_factory=dict[str, str])

    def follows(self, record: TrainingStep) -> bool:
        """Whether the record can be the next of the ledger."""
        return record.step == self.last_step + (record.outcome is not StepOutcome.MEASURED)

    def add_commit(self, commit: StepCommit) -> None:
        """Take in a committed step."""
        self.add_step(commit.step)
        if commit.resources is not None:
            self.add_resources(commit.resources)

    def add_step(self, record: TrainingStep) -> None:
        """Take in the next record of the ledger."""
        if record.outcome is StepOutcome.DISCARDED:
            self.discarded[record.step] = self.discarded.get(record.step, 0) + 1
        elif record.outcome is StepOutcome.MEASURED:
            self.measured = True
        else:
            self.last_step = record.step
            self.measured = False
            self.mean_rewards.append(record.metrics.get("reward/mean", math.nan))
            del self.mean_rewards[:-MEAN_REWARDS_KEPT]
        if record.outcome is StepOutcome.UPDATED:
            self.updates.append(record)
        self.ended_unix_nano = record.ended_unix_nano
        self.made_with = dict(record.made_with) or self.made_with
        self.resources_id = record.resources_id or self.resources_id
        if record.window is not None:
            self.windows.add_step(record)
        else:
            for c in record.consumed:
                self.settled.consume(c.group_id, {c.rollout_id: (c.attempt_id, c.revision)})
        for group_id in record.skipped_groups:
            self.settled.skip(group_id)
        self.settled.advance(record.settled_below)
        self.discarded = {s: tries for s, tries in self.discarded.items() if s >= self.settled.below_step}
        for position in record.low_water:
            if position.topic == TRAJECTORIES.name:
                self.low_water[position.partition] = position.offset
        if record.checkpoint_url is not None:
            self.checkpoints[record.step] = record.checkpoint_url

    def add_resources(self, record: ResourcesRecord) -> None:
        """Take in resources of the run."""
        self.resources = record
        if record.version == 0:
            self.made_with = self.made_with or dict(record.made_with)
            if record.checkpoint_url is not None:
                self.checkpoints[0] = record.checkpoint_url


def replay(
    steps: Iterable[Record],
    resources: Iterable[Record],
    *,
    trainer_id: str,
    run_id: str,
    since: History | None = None,
) -> History:
    """The past of one trainer, from the records of ``training-steps`` and ``resources`` in log order.

    Args:
        since: a past, which is added to; ``None``: these are all records.

    Raises:
        TrainingError: the ledger has a gap, a step twice, or names resources that do not exist.
    """
    history = since or History(settled=SettledGroups(run_id))
    for record in steps:
        if not isinstance(record, TrainingStep) or record.trainer_id != trainer_id:
            continue
        if record.run_id != run_id:
            raise TrainingError(
                f"trainer {trainer_id!r} made step {record.step} of run {record.run_id!r}, not of {run_id!r}.",
                next_step="Use another trainer_id for another run.",
            )
        if not history.follows(record):
            raise TrainingError(
                f"the ledger of {trainer_id!r} goes from step {history.last_step} to {record.step}.",
                next_step=START_ANEW,
            )
        history.add_step(record)
    wanted = history.resources_id
    for record in resources:
        if not isinstance(record, ResourcesRecord) or record.run_id != run_id:
            continue
        if record.version == 0 or wanted is None or record.resources_id == wanted:
            history.add_resources(record)
    if wanted is not None and (history.resources is None or history.resources.resources_id != wanted):
        raise TrainingError(
            f"step {history.last_step} of {trainer_id!r} names resources {wanted!r}, which are gone.",
            next_step=START_ANEW,
        )
    return history
