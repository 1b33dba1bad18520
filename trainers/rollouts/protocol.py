"""A source of groups of rollouts, as a trainer needs it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol

from lightstream.schemas.records import Trajectory
from lightstream.schemas.types import EnqueueRolloutRequest

from .groups import Group, SkippedGroups


class GroupSource(Protocol):
    """A source of groups of rollouts."""

    def seek(self, low_water: Mapping[int, int]) -> None:
        """Read on from the offsets of :meth:`low_water`: partition -> offset; other partitions from their beginning."""
        ...

    def ask(self, requests: Sequence[EnqueueRolloutRequest]) -> None:
        """Have rollouts made. Those of a group come together, and asking again for the same changes nothing."""
        ...

    def groups(
        self, group_ids: Collection[str], *, least: int | None = None, wait_s: float | None = None
    ) -> Iterator[Group]:
        """The complete ones of these groups, each once: of several that are complete, the first named.

        A group that was returned counts as consumed: it must be part of the next step. Ends when each is returned or
        given up; those that are left when the caller stops early stay for later.

        Args:
            group_ids: which.
            least: a group whose time is over is returned with so many members; ``None``: it is given up.
            wait_s: a shorter time than ``limit_s``.
        """
        ...

    def reread(
        self, low_water: Mapping[int, int], identities: Collection[tuple[str, str, int]]
    ) -> dict[tuple[str, str, int], Trajectory]:
        """Trajectories that a step consumed, by (rollout_id, attempt_id, revision), as far as they are still there.

        Reads on from ``low_water``; :meth:`seek` has to follow.
        """
        ...

    def give_up(self, group_ids: Collection[str]) -> None:
        """Wait no longer for these groups: :meth:`take_skipped` gives their past and later records."""
        ...

    def validation_groups(self, group_ids: Collection[str]) -> list[Group]:
        """The same for groups of validation rollouts, all at once; none of them is part of a step."""
        ...

    def take_skipped(self) -> SkippedGroups:
        """Return the trajectories of skipped groups that arrived since the last call. They count as consumed."""
        ...

    def low_water(self) -> dict[int, int]:
        """Partition -> the offset below which nothing is needed any more, once the returned groups are committed."""
        ...

    def metrics(self) -> dict[str, float]:
        """Counts of records that came so far, and of records that were passed over."""
        ...

    @property
    def skipped(self) -> frozenset[str]:
        """Groups that are given up, by earlier steps too: the last of them at least."""
        ...

    @property
    def limit_s(self) -> float:
        """Seconds without a trajectory after which a group is given up."""
        ...

    @property
    def consumer_group(self) -> object:
        """The consumer group whose offsets :meth:`low_water` returns, as the ledger needs it."""
        ...
