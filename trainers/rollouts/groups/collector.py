"""Turns single trajectories, in the order of the log, into complete groups of one run.

Invariants:

- A group is complete once ``group_size`` rollouts of it have a final trajectory. It can be taken once.
- A rollout is one member, however often its trajectory comes: the highest attempt and revision counts until the group
  is taken. What comes later stays in the log and is not trained on.
- The order of a group's members depends on their ids, never on their arrival.
- What is taken or skipped is in ``settled`` at once. The ledger stores it with the step, so a restart takes nothing
  again.
- :meth:`GroupCollector.low_water` never passes a trajectory of a group that is not taken: a reader that starts there
  misses none.
- With ``awaited`` rewards a rollout that succeeded is a member once it has all of these, in whichever revision. Until
  then it holds back the low-water mark, and its group is not given up for it.
- Every arrival is counted under one :class:`Arrival`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from lightstream.schemas.records import AttemptStatus, RolloutMode, Trajectory

from ...run.settled import SettledGroups

_DIGITS = re.compile(r"(\d+)")


def natural_order(text: str) -> tuple[tuple[int, int, str], ...]:
    """A sort key that puts ``s2`` before ``s10``: runs of digits compare as numbers, the rest as text."""
    parts = _DIGITS.split(text)
    return tuple((1, int(part), part) if i % 2 else (0, 0, part) for i, part in enumerate(parts))


def group_id_of(trajectory: Trajectory) -> str:
    """Its group; a rollout without a group is its own."""
    return trajectory.group_id or trajectory.rollout_id


@dataclass(frozen=True, slots=True)
class Group:
    """``group_size`` final trajectories of one task, in the natural order of their rollout ids.

    The order does not depend on how they arrived, so the same trajectories always make the same batch. A group
    that was skipped, or was taken before all were there, has fewer. One of mode ``test`` is the others' baseline.
    """

    group_id: str
    trajectories: tuple[Trajectory, ...]

    @property
    def sampled(self) -> tuple[Trajectory, ...]:
        """The trajectories that can be trained on."""
        return tuple(t for t in self.trajectories if t.mode is not RolloutMode.TEST)

    @property
    def asked(self) -> int:
        """The number of requested rollouts: more than there are, where the group was taken before all had come."""
        size = max((t.group_size for t in self.trajectories), default=0)
        return max(len(self.sampled), size - (len(self.trajectories) - len(self.sampled)))

    @property
    def baseline(self) -> Trajectory | None:
        """The greedy rollout that these are compared with, if there is one."""
        return next((t for t in self.trajectories if t.mode is RolloutMode.TEST), None)


@dataclass(frozen=True, slots=True)
class SkippedGroups:
    """The groups that were skipped since the last time, and later records of these and of earlier ones."""

    names: list[str]
    came: list[Group]


class Arrival(StrEnum):
    """Outcome of a trajectory's arrival."""

    COUNTED = "counted"
    """It is a new member of its group."""
    REPLACED = "replaced"
    """A later revision of a member that is not consumed yet, or the same rollout's next final attempt, as it was put
    back into the queue; the group holds that now."""
    DUPLICATE = "duplicate"
    """The same trajectory, or an older revision, again."""
    REVISED_TOO_LATE = "revised_too_late"
    """A later revision of a consumed trajectory, or another attempt of its rollout: it stays in the log, and is not
    trained again."""
    SETTLED = "settled"
    """Of a group that steps have long done with, or one more than the group has members: it stays in the log, and is
    not trained."""
    GROUP_SKIPPED = "group_skipped"
    """A member of a group that is skipped: :meth:`GroupCollector.take_skipped` returns it."""
    AWAITS_REWARD = "awaits_reward"
    """It lacks a reward that is to come, such as a judge's."""
    NOT_FINAL = "not_final"
    NOT_OURS = "not_ours"
    """Of another run, or of a mode that nobody collects here."""


@dataclass(slots=True)
class _Pending:
    group_size: int
    members: dict[str, Trajectory] = field(default_factory=dict[str, Trajectory])
    first_offsets: dict[int, int] = field(default_factory=dict[int, int])
    awaiting: dict[str, Trajectory] = field(default_factory=dict[str, Trajectory])


class GroupCollector:
    """Collects the groups of one run. Not thread-safe.

    Args:
        run_id: only trajectories of this run count.
        settled: what earlier steps consumed and skipped; what is taken and skipped here is added at once.
        modes: which trajectories to collect.
        awaited: names of rewards that a rollout needs, unless it failed or has no call that can train.
    """

    def __init__(
        self,
        run_id: str,
        settled: SettledGroups | None = None,
        modes: Collection[RolloutMode] = (RolloutMode.TRAIN, RolloutMode.TEST),
        awaited: Collection[str] = (),
    ) -> None:
        self._run_id = run_id
        self._settled = SettledGroups(run_id) if settled is None else settled
        self._modes = frozenset(modes)
        self._awaited = frozenset(awaited)
        self._pending: dict[str, _Pending] = {}
        self._complete: dict[str, None] = {}
        self._newly_skipped: list[str] = []
        self.arrivals: Counter[Arrival] = Counter()

    def add(self, trajectory: Trajectory, partition: int, offset: int) -> Arrival:
        """Take in the trajectory that lies at ``offset`` of ``partition``. Offsets of a partition must not go back."""
        arrival = self._add(trajectory, partition, offset)
        self.arrivals[arrival] += 1
        return arrival

    def complete(self, of: Collection[str] | None = None) -> list[str]:
        """Ids of the complete groups, in the order in which they became so, at most the ones named in ``of``."""
        return [group_id for group_id in self._complete if of is None or group_id in of]

    def missing(self, group_ids: Iterable[str]) -> dict[str, int]:
        """Group id -> how many of its trajectories are here, for incomplete groups."""
        return {
            group_id: len(self._pending[group_id].members) if group_id in self._pending else 0
            for group_id in group_ids
            if group_id not in self._complete
        }

    def awaiting(self, group_ids: Iterable[str]) -> dict[str, int]:
        """Group id -> how many of its trajectories lack a reward, for groups that lack nothing else."""
        pending = {group_id: self._pending[group_id] for group_id in group_ids if group_id in self._pending}
        return {
            group_id: len(group.awaiting)
            for group_id, group in pending.items()
            if group.awaiting and len(group.members.keys() | group.awaiting.keys()) >= group.group_size
        }

    def incomplete(self) -> dict[str, int]:
        """As :meth:`missing`, of all groups that have begun."""
        return self.missing(self._pending)

    def take(self, group_ids: Iterable[str]) -> list[Group]:
        """Remove complete groups; they count as consumed from now on. In the natural order of their ids.

        Raises:
            KeyError: one of them is not complete; nothing was removed.
        """
        wanted = sorted(group_ids, key=natural_order)
        for group_id in wanted:
            if group_id not in self._complete:
                raise KeyError(f"group {group_id!r} is not complete")
        return [self._take(group_id) for group_id in wanted]

    @property
    def skipped(self) -> frozenset[str]:
        """The groups that are given up, the last of them at least."""
        return frozenset(self._settled.skipped)

    def skip(self, group_id: str) -> None:
        """Give up a group that was not taken: it never will be complete, whatever still comes."""
        self._skip(group_id)
        self._complete.pop(group_id, None)

    def take_partial(self, group_id: str) -> Group:
        """Remove a group with its present members; for the others it is skipped.

        Raises:
            KeyError: none of it is here.
        """
        awaiting = self._pending[group_id].awaiting
        offsets = self._pending[group_id].first_offsets
        group = self._take(group_id)
        self._skip(group_id)
        if awaiting:  # for take_skipped
            self._pending[group_id] = _Pending(len(awaiting), awaiting, offsets)
        return group

    def take_skipped(self) -> SkippedGroups:
        """Remove the records of skipped groups, also new ones since the last call; they count as consumed from now
        on."""
        names, self._newly_skipped = self._newly_skipped, []
        arrived = sorted(self._settled.skipped.keys() & self._pending.keys(), key=natural_order)
        return SkippedGroups(sorted(names, key=natural_order), [self._take(name) for name in arrived])

    def low_water(self, next_offsets: Mapping[int, int]) -> dict[int, int]:
        """Partition -> the offset below which nothing is needed any more.

        Args:
            next_offsets: partition -> next offset to read; the answer where no collected group holds it back.
        """
        low = dict(next_offsets)
        for pending in self._pending.values():
            for partition, offset in pending.first_offsets.items():
                low[partition] = min(low.get(partition, offset), offset)
        return low

    def _add(self, trajectory: Trajectory, partition: int, offset: int) -> Arrival:
        if trajectory.run_id != self._run_id or trajectory.mode not in self._modes:
            return Arrival.NOT_OURS
        if not trajectory.final:
            return Arrival.NOT_FINAL
        group_id = group_id_of(trajectory)
        is_skipped = group_id in self._settled.skipped
        consumed = self._settled.consumed.get(group_id, {}).get(trajectory.rollout_id)
        if consumed is not None:
            same = consumed[0] == trajectory.attempt_id and trajectory.revision <= consumed[1]
            return Arrival.DUPLICATE if same else Arrival.REVISED_TOO_LATE
        if group_id in self._settled and not is_skipped:
            return Arrival.SETTLED
        pending = self._pending.get(group_id)
        if pending is None:
            pending = self._pending[group_id] = _Pending(max(1, trajectory.group_size))
        rollout_id = trajectory.rollout_id
        known = pending.members.get(rollout_id) or pending.awaiting.get(rollout_id)
        if known is not None and _age(trajectory) <= _age(known):
            return Arrival.DUPLICATE
        pending.first_offsets.setdefault(partition, offset)
        if self._lacks_reward(trajectory) and not is_skipped:
            if pending.members.pop(rollout_id, None) is not None:  # the rollout was put back into the queue
                self._complete.pop(group_id, None)
            pending.awaiting[rollout_id] = trajectory
            return Arrival.AWAITS_REWARD
        known = pending.members.get(rollout_id)
        pending.awaiting.pop(rollout_id, None)
        pending.members[rollout_id] = trajectory
        if is_skipped:
            return Arrival.GROUP_SKIPPED
        if len(pending.members) >= pending.group_size:
            self._complete.setdefault(group_id)
        return Arrival.COUNTED if known is None else Arrival.REPLACED

    def _lacks_reward(self, trajectory: Trajectory) -> bool:
        if not self._awaited or trajectory.status is not AttemptStatus.SUCCEEDED or not trajectory.triplets:
            return False  # without triplets nothing of it trains
        return not self._awaited.issubset(reward.name for reward in trajectory.rewards)

    def _take(self, group_id: str) -> Group:
        self._complete.pop(group_id, None)
        pending = self._pending.pop(group_id)
        members = pending.members if group_id not in self._settled.skipped else pending.awaiting | pending.members
        trajectories = tuple(members[rollout_id] for rollout_id in sorted(members, key=natural_order))
        self._settled.consume(group_id, {t.rollout_id: (t.attempt_id, t.revision) for t in trajectories})
        return Group(group_id, trajectories)

    def _skip(self, group_id: str) -> None:
        if group_id not in self._settled.skipped:
            self._settled.skip(group_id)
            self._newly_skipped.append(group_id)


def _age(trajectory: Trajectory) -> tuple[int, int]:
    """Of a rollout's final trajectories the one that is the greatest by this counts."""
    return trajectory.attempt_sequence, trajectory.revision
