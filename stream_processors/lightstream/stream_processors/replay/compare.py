"""What another rule would have changed, counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from lightstream.schemas.records import Trajectory

from ..core.segments import segments_of
from .history import Emitted, History, Merge

__all__ = ["Comparison", "Difference"]


@dataclass(slots=True)
class Difference:
    """Counts over some attempts; those in pairs are (recorded, replayed).

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
        """Count what the replay did not make: attempts that are still open, or began at other times."""
        missing = self.history.emitted.keys() - self._seen
        self.all.only_before = len(missing)
        self.trained.only_before = len(missing & self.history.trained.keys())
