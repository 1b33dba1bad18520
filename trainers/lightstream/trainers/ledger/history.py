"""What the ledger says about a trainer's past. A pure fold over records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from lightstream.schemas.errors import TrainingError
from lightstream.schemas.records import Record, ResourcesRecord, TrainingStep

__all__ = ["History", "replay"]

START_ANEW = "Restore the topic, or start a new run with another run_id and trainer_id."


@dataclass(slots=True)
class History:
    """The past of one trainer.

    Attributes:
        last_step: the last committed step, 0 before the first.
        consumed: (rollout_id, attempt_id, revision) of everything that a step consumed.
        consumed_groups: the groups of those.
        low_water: partition of ``trajectories`` -> offset to read from; missing partitions from their beginning.
        resources: the latest resources of the run, version 0 included; ``None`` before the first.
        checkpoints: step -> folder of its checkpoint; step 0 is that of the first resources.
    """

    last_step: int = 0
    consumed: set[tuple[str, str, int]] = field(default_factory=set[tuple[str, str, int]])
    consumed_groups: set[str] = field(default_factory=set[str])
    low_water: dict[int, int] = field(default_factory=dict[int, int])
    resources: ResourcesRecord | None = None
    checkpoints: dict[int, str] = field(default_factory=dict[int, str])

    def add_step(self, record: TrainingStep, trajectories_topic: str) -> None:
        """Take in the next step of the ledger."""
        self.last_step = record.step
        self.consumed.update((c.rollout_id, c.attempt_id, c.revision) for c in record.consumed)
        self.consumed_groups.update(c.group_id for c in record.consumed)
        for position in record.low_water:
            if position.topic == trajectories_topic:
                self.low_water[position.partition] = position.offset
        if record.checkpoint_url is not None:
            self.checkpoints[record.step] = record.checkpoint_url

    def add_resources(self, record: ResourcesRecord) -> None:
        """Take in resources of the run."""
        self.resources = record
        if record.version == 0 and record.checkpoint_url is not None:
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
        if record.step != history.last_step + 1:
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
