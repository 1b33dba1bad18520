"""A ledger that lasts as long as the process: for runs without Kafka."""

from __future__ import annotations

from collections.abc import Collection

from lightstream.schemas.records import ResourcesRecord, TrainingStep

from ..run.history import History, StepCommit, replay


class MemoryLedger:
    """The steps and resources of one run, in the order in which they were committed.

    Attributes:
        steps: what ``training-steps`` would hold.
        resources: what ``resources`` would hold.
    """

    def __init__(self, *, trainer_id: str, run_id: str) -> None:
        self._trainer_id = trainer_id
        self._run_id = run_id
        self.steps: list[TrainingStep] = []
        self.resources: list[ResourcesRecord] = []
        self._history: History | None = None

    def open(self) -> History:
        """Return how far the run got. What is committed later is added to it.

        Raises:
            TrainingError: the records contradict each other.
        """
        self._history = replay(self.steps, self.resources, trainer_id=self._trainer_id, run_id=self._run_id)
        return self._history

    def publish_resources(self, record: ResourcesRecord) -> None:
        """Keep resources that belong to no step (version 0)."""
        self.resources.append(record)
        if self._history is not None:
            self._history.add_resources(record)

    def commit(self, commit: StepCommit) -> None:
        """Keep a step and its resources."""
        self.steps.append(commit.step)
        if commit.resources is not None:
            self.resources.append(commit.resources)
        if self._history is not None:
            self._history.add_commit(commit)

    def released(self) -> Collection[str]:
        """None: releases are on Kafka."""
        return ()

    def close(self) -> None:
        """Nothing to give back."""
