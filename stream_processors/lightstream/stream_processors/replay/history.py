"""Each attempt's recorded trajectory, and whether it was trained on: as much as a comparison needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from lightstream.runtime.large_records import whole_trajectory
from lightstream.runtime.schema_registry import codec_for
from lightstream.runtime.settings import Settings
from lightstream.schemas.records import TrainingStep, Trajectory
from lightstream.schemas.topics import TRAINING_STEPS, TRAJECTORIES

from ..core.segments import Segment, segments_of
from .log import TopicReader
from .selection import AttemptKey, Selection

__all__ = ["Emitted", "History", "Merge", "read_history"]

Merge = Callable[[Trajectory], list[Segment]]


@dataclass(frozen=True, slots=True)
class Emitted:
    """A trajectory without its tokens: about 100 bytes per call.

    Attributes:
        calls: reward by (offset of its span, choice); ``None`` is missing.
        drops: reason -> count.
        starts: why each merged segment begins -> count.
    """

    revision: int
    final: bool
    reward: float | None
    calls: dict[tuple[int, int], float | None]
    drops: dict[str, int]
    starts: dict[str, int]

    @classmethod
    def of(cls, trajectory: Trajectory, merge: Merge = segments_of) -> Emitted:
        """What is kept of ``trajectory``."""
        drops: dict[str, int] = {}
        for drop in trajectory.drops:
            drops[drop.reason.value] = drops.get(drop.reason.value, 0) + 1
        starts: dict[str, int] = {}
        for segment in merge(trajectory):
            starts[segment.start_reason.value] = starts.get(segment.start_reason.value, 0) + 1
        return cls(
            trajectory.revision,
            trajectory.final,
            trajectory.reward,
            {(t.source_offset, t.choice_index): t.reward for t in trajectory.triplets},
            drops,
            starts,
        )


@dataclass(slots=True)
class History:
    """The trajectories in the log: the latest revision of each attempt, or the one that was trained on.

    Attributes:
        trained: attempt -> the revision that a training step consumed.
    """

    emitted: dict[AttemptKey, Emitted] = field(default_factory=dict[AttemptKey, Emitted])
    trained: dict[AttemptKey, int] = field(default_factory=dict[AttemptKey, int])

    def add_step(self, step: TrainingStep) -> None:
        """Take a training step. Steps come before trajectories: they say which revision counts."""
        for consumed in step.consumed:
            self.trained[consumed.rollout_id, consumed.attempt_id] = consumed.revision

    def add(self, trajectory: Trajectory) -> None:
        """Take a trajectory; a repeated one changes nothing."""
        key = trajectory.rollout_id, trajectory.attempt_id
        known, trained = self.emitted.get(key), self.trained.get(key)
        if known is not None and known.revision in (trained, trajectory.revision):
            return
        if known is None or trajectory.revision == trained or trajectory.revision > known.revision:
            self.emitted[key] = Emitted.of(trajectory)


def read_history(settings: Settings, selection: Selection | None = None) -> History:
    """The trajectories and training steps of the log, of all times.

    Args:
        selection: only trajectories of its run, and of its attempts.

    Raises:
        ServiceUnavailableError: Kafka does not answer.
        ArtefactError: a trajectory was too large for a record, and its file is missing.
    """
    history, selected = History(), selection or Selection()
    codec = codec_for(settings)
    steps, trajectories = TopicReader(settings, TRAINING_STEPS), TopicReader(settings, TRAJECTORIES)
    for partition in steps.partitions:
        for entry in steps.records(partition):
            if isinstance(entry.record, TrainingStep):
                history.add_step(entry.record)
    for partition in trajectories.partitions:
        for entry in trajectories.records(partition):
            if isinstance(entry.record, Trajectory) and selected.has(entry.record):
                history.add(whole_trajectory(entry.record, codec))
    return history
