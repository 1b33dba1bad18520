"""A step that a loop of one's own makes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from lightstream.schemas.records import LearningWindow, ResourcesRecord, Trajectory
from lightstream.schemas.types import NamedResources

from ...rollouts.groups import Group


@dataclass(slots=True)
class Learned:
    """Account of a policy's learning in a step, for the ledger.

    Attributes:
        changed: whether the weights are others than before the step.
        cause: why gradients changed nothing, in words.
        checkpoint: the folder that training goes on from; ``None``: that of an earlier step.
        triplets_used, not_trained: of each (rollout_id, attempt_id), how many calls had a weight, and why others not.
    """

    changed: bool = False
    cause: str = ""
    checkpoint: Path | None = None
    triplets_used: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    not_trained: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict[tuple[str, str], dict[str, int]])


@dataclass(slots=True)
class Step:
    """A step that is being made. What is put into it becomes visible together, once the loop's body is left.

    Attributes:
        number: 1, 2, …; restarts count on.
        groups: what it consumes, in the natural order of their names, as the rollouts within each.
        resources: the run's latest; ``None`` before the first. Rollouts should be enqueued with its ``resources_id``.
        metrics: numbers to keep with the step; finite ones are kept.
        published: what :meth:`publish` made.
        learned: what a policy learned of it; ``None`` without one.
        window: of a learner, the window of traffic that the groups are.
        is_last: whether :meth:`stop` was called.
    """

    number: int
    groups: tuple[Group, ...]
    resources: ResourcesRecord | None
    metrics: dict[str, float] = field(default_factory=dict[str, float])
    published: ResourcesRecord | None = field(default=None, init=False)
    learned: Learned | None = field(default=None, init=False)
    window: LearningWindow | None = field(default=None, init=False)
    is_last: bool = field(default=False, init=False)
    _new_record: Callable[..., ResourcesRecord] = field(kw_only=True, repr=False)

    @property
    def trajectories(self) -> list[Trajectory]:
        """The trajectories of all groups."""
        return [trajectory for group in self.groups for trajectory in group.trajectories]

    def publish(
        self, resources: NamedResources, *, model: str | None = None, checkpoint: Path | None = None
    ) -> ResourcesRecord:
        """Make this the run's next version, ``<run_id>-v<version>``. Nobody sees it before the step is committed.

        Args:
            resources: what agents are given, by name.
            model: the name that the weights are served under, for example ``policy@7``.
            checkpoint: the folder of the weights, already on the disk; model servers load it.
        """
        version = 0 if self.resources is None else self.resources.version + 1
        self.published = self._new_record(version, resources, model=model, checkpoint=checkpoint)
        return self.published

    def stop(self) -> None:
        """End the loop after this step. It is committed, which it is not after a ``break``."""
        self.is_last = True
