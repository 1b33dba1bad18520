"""The groups of a run that need nothing more, in a size that does not depend on how long the run is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .tasks import place_of_group

SKIPPED_KEPT = 1000
"""Skipped groups of which a late rollout is still consumed, without a weight."""


@dataclass(slots=True)
class SettledGroups:
    """Groups that were consumed by a step, or are skipped: two marks, and the groups above them by name.

    Attributes:
        run_id: the run, whose name its groups begin with.
        below_step: every group of the steps before this one is settled.
        below_further: so is every further group (``tasks.further_group_id``) with a smaller number.
        consumed: group -> rollout -> attempt and revision, of groups above the marks and of skipped ones.
        skipped: the last groups that were skipped, in this order; of some, nothing was consumed.
    """

    run_id: str = ""
    below_step: int = 1
    below_further: int = 0
    consumed: dict[str, dict[str, tuple[str, int]]] = field(default_factory=dict[str, dict[str, tuple[str, int]]])
    skipped: dict[str, None] = field(default_factory=dict[str, None])

    def __contains__(self, group_id: object) -> bool:
        return isinstance(group_id, str) and (
            group_id in self.consumed or group_id in self.skipped or self._is_below(group_id)
        )

    def consume(self, group_id: str, members: Mapping[str, tuple[str, int]]) -> None:
        """Add rollouts of a group: rollout -> attempt and revision."""
        self.consumed.setdefault(group_id, {}).update(members)

    def skip(self, group_id: str) -> None:
        """Add a group that is waited for no longer."""
        self.skipped.setdefault(group_id)

    def advance(self, below_step: int) -> None:
        """Note that every group of the steps before this one is settled; forgets groups below the marks."""
        self.below_step = max(self.below_step, below_step)
        numbers = {
            place[1] for name in (*self.consumed, *self.skipped) if (place := self._place(name)) and not place[0]
        }
        while self.below_further in numbers:
            self.below_further += 1
        excess = len(self.skipped) - SKIPPED_KEPT
        for name in [name for name in self.skipped if self._is_below(name)][: max(0, excess)]:
            del self.skipped[name]
        for name in [name for name in self.consumed if name not in self.skipped and self._is_below(name)]:
            del self.consumed[name]

    def _is_below(self, group_id: str) -> bool:
        place = self._place(group_id)
        if place is None:
            return False
        step, number = place
        return step < self.below_step if step else number < self.below_further

    def _place(self, group_id: str) -> tuple[int, int] | None:
        return place_of_group(self.run_id, group_id)
