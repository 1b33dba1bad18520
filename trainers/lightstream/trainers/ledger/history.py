"""A trainer's past, a pure fold over the ledger's records, and what a step adds to it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from lightstream.schemas.errors import TrainingError
from lightstream.schemas.records import Record, ResourcesRecord, StepOutcome, TrainingStep

__all__ = ["History", "StepCommit", "replay"]

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
    """The past of one trainer.

    Attributes:
        last_step: the last committed step, 0 before the first.
        consumed: (rollout_id, attempt_id, revision) of everything that a step consumed.
        consumed_groups: the groups of those.
        skipped_groups: the groups that were given up; of some, nothing was consumed.
        low_water: partition of ``trajectories`` -> offset to read from; missing partitions from their beginning.
        resources: the latest resources of the run, version 0 included; ``None`` before the first.
        checkpoints: step -> folder of its weights; step 0 is that of the first resources.
        updates: the steps that changed the weights, in order; whoever keeps checkpoints forgets those before one.
        discarded: step -> how many tries of it were discarded.
        mean_rewards: of each committed step; NaN where it had none.
        measured: whether the policy was validated after the last step.
        made_with: what the run is made with, see ``ResourcesRecord.made_with``.
    """

    last_step: int = 0
    consumed: set[tuple[str, str, int]] = field(default_factory=set[tuple[str, str, int]])
    consumed_groups: set[str] = field(default_factory=set[str])
    skipped_groups: set[str] = field(default_factory=set[str])
    low_water: dict[int, int] = field(default_factory=dict[int, int])
    resources: ResourcesRecord | None = None
    checkpoints: dict[int, str] = field(default_factory=dict[int, str])
    updates: list[TrainingStep] = field(default_factory=list[TrainingStep])
    discarded: dict[int, int] = field(default_factory=dict[int, int])
    mean_rewards: list[float] = field(default_factory=list[float])
    measured: bool = False
    made_with: dict[str, str] = field(default_factory=dict[str, str])

    def follows(self, record: TrainingStep) -> bool:
        """Whether the record can be the next of the ledger."""
        return record.step == self.last_step + (record.outcome is not StepOutcome.MEASURED)

    def add_step(self, record: TrainingStep, trajectories_topic: str) -> None:
        """Take in the next record of the ledger."""
        if record.outcome is StepOutcome.DISCARDED:
            self.discarded[record.step] = self.discarded.get(record.step, 0) + 1
        elif record.outcome is StepOutcome.MEASURED:
            self.measured = True
        else:
            self.last_step = record.step
            self.measured = False
            self.mean_rewards.append(record.metrics.get("reward/mean", math.nan))
        if record.outcome is StepOutcome.UPDATED:
            self.updates.append(record)
        self.made_with = dict(record.made_with) or self.made_with
        self.consumed.update((c.rollout_id, c.attempt_id, c.revision) for c in record.consumed)
        self.consumed_groups.update(c.group_id for c in record.consumed)
        self.skipped_groups.update(record.skipped_groups)
        for position in record.low_water:
            if position.topic == trajectories_topic:
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
    steps: Iterable[Record], resources: Iterable[Record], *, trainer_id: str, run_id: str, trajectories_topic: str
) -> History:
    """The past of one trainer, from all records of ``training-steps`` and ``resources`` in log order.

    Raises:
        TrainingError: the ledger has a gap, a step twice, or names resources that do not exist.
    """
    history = History()
    wanted: str | None = None
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
        history.add_step(record, trajectories_topic)
        wanted = record.resources_id or wanted
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
