"""Recorded trajectories against a replay's: counts of the changes by other rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from lightstream.runtime.large_records import whole_trajectory
from lightstream.runtime.schema_registry import codec_for
from lightstream.runtime.settings import Settings
from lightstream.schemas.records import TrainingStep, Trajectory
from lightstream.schemas.topics import TRAINING_STEPS, TRAJECTORIES

from ..core.segments import Segment, segments_of
from .log import AttemptKey, Selection, TopicReader

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
        """The parts of ``trajectory`` that are compared."""
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
                history.add(whole_trajectory(entry.record, codec, settings))
    return history


@dataclass(slots=True)
class Difference:
    """Counts over some attempts; pairs are (recorded, replayed).

    Attributes:
        attempts: attempts compared.
        changed: of these, attempts in which anything differs.
        only_before, only_now: attempts that only one side has.
        rewards_changed: trajectories whose reward differs; of these, ``rewards_added`` have one only now, and
            ``rewards_lost`` had one only before.
        rewards_compared: trajectories that have a reward on both sides; ``reward_sums`` are theirs.
        calls_added, calls_lost: calls that only now, or only before, are training data.
        call_rewards_changed: calls of both whose reward differs.
        segments: why merged segments begin, before and now.
        drops: reasons, before and now.
    """

    attempts: int = 0
    changed: int = 0
    only_before: int = 0
    only_now: int = 0
    rewards_changed: int = 0
    rewards_added: int = 0
    rewards_lost: int = 0
    rewards_compared: int = 0
    reward_sums: tuple[float, float] = (0.0, 0.0)
    calls_added: int = 0
    calls_lost: int = 0
    call_rewards_changed: int = 0
    segments: tuple[Counter[str], Counter[str]] = field(default_factory=lambda: (Counter[str](), Counter[str]()))
    drops: tuple[Counter[str], Counter[str]] = field(default_factory=lambda: (Counter[str](), Counter[str]()))

    @property
    def mean_rewards(self) -> tuple[float | None, float | None]:
        """Mean reward before and now, of the trajectories that have one on both sides; ``None`` where there is none."""
        if not self.rewards_compared:
            return None, None
        before, now = self.reward_sums
        return before / self.rewards_compared, now / self.rewards_compared

    def add(self, before: Emitted, now: Emitted) -> None:
        """Compare one attempt."""
        self.attempts += 1
        self.rewards_changed += before.reward != now.reward
        self._add_rewards(before.reward, now.reward)
        both = before.calls.keys() & now.calls.keys()
        self.calls_added += len(now.calls) - len(both)
        self.calls_lost += len(before.calls) - len(both)
        self.call_rewards_changed += sum(before.calls[call] != now.calls[call] for call in both)
        for counts, old, new in ((self.segments, before.starts, now.starts), (self.drops, before.drops, now.drops)):
            counts[0].update(old)
            counts[1].update(new)
        self.changed += (before.reward, before.calls, before.starts, before.drops) != (
            now.reward,
            now.calls,
            now.starts,
            now.drops,
        )

    def _add_rewards(self, before: float | None, now: float | None) -> None:
        self.rewards_added += before is None and now is not None
        self.rewards_lost += before is not None and now is None
        if before is not None and now is not None:
            self.rewards_compared += 1
            self.reward_sums = self.reward_sums[0] + before, self.reward_sums[1] + now


@dataclass(slots=True)
class Comparison:
    """The recorded trajectories against the replayed ones; trained attempts are also counted separately.

    Where a revision was trained on, late spans that came since are part of the difference.
    """

    history: History
    merge: Merge = segments_of
    all: Difference = field(default_factory=Difference)
    trained: Difference = field(default_factory=Difference)
    _seen: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    def add(self, trajectory: Trajectory) -> None:
        """Take a trajectory of the replay, which makes one of each attempt."""
        key = trajectory.rollout_id, trajectory.attempt_id
        before = self.history.emitted.get(key)
        self._seen.add(key)
        if before is None:
            self.all.only_now += 1
            return
        now = Emitted.of(trajectory, self.merge)
        self.all.add(before, now)
        if key in self.history.trained:
            self.trained.add(before, now)

    def finish(self) -> None:
        """Count attempts that the replay did not make: they are still open, or began at other times."""
        missing = self.history.emitted.keys() - self._seen
        self.all.only_before = len(missing)
        self.trained.only_before = len(missing & self.history.trained.keys())
