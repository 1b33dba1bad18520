"""Deadlines of groups. Pure: the clock is an argument."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lightstream.schemas.types import RolloutConfig

STALL_MARGIN_S = 120.0


def longest_rollout_s(config: RolloutConfig, timeout_s: float) -> float:
    """After this long without a trajectory, every rollout that had a Runner must have ended.

    Args:
        config: deadlines and retries of the rollouts.
        timeout_s: of an attempt, where ``config`` has none.
    """
    return (config.timeout_seconds or timeout_s) * config.max_attempts + STALL_MARGIN_S


@dataclass(slots=True)
class _Wait:
    size: int
    asked_s: float
    since_s: float


class Deadlines:
    """The deadline of each group that was asked for and is neither complete nor given up.

    A group's time counts from when it was asked for, and again from each trajectory of its own or of a group that was
    asked for before it: rollouts are begun in this order, so until then its own may have waited for a free Runner.

    Args:
        limit_s: after so many seconds in which none of these comes, none will.
    """

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._waits: dict[str, _Wait] = {}

    def asked(self, group_ids: Iterable[str], now_s: float, size: int = 0) -> None:
        """Note that groups are requested, or waited for; earlier ones keep their time.

        Args:
            size: how many rollouts each has; 0: not known.
        """
        for group_id in group_ids:
            self._waits.setdefault(group_id, _Wait(size, now_s, now_s))

    def size(self, group_id: str) -> int:
        """How many rollouts a group has that is asked for; 0: not known."""
        wait = self._waits.get(group_id)
        return 0 if wait is None else wait.size

    def came(self, group_id: str, now_s: float) -> None:
        """A first trajectory of one of the group's rollouts is here."""
        if group_id not in self._waits:
            return
        reached = False
        for name, wait in self._waits.items():
            reached = reached or name == group_id
            if reached:
                wait.since_s = now_s

    def overdue(self, group_ids: Iterable[str], now_s: float, limit_s: float | None = None) -> list[str]:
        """The groups whose time is over; ``limit_s``: a shorter time."""
        limit_s = self.limit_s if limit_s is None else min(limit_s, self.limit_s)
        return [name for name in group_ids if now_s - self._waits[name].since_s > limit_s]

    def end(self, group_ids: Iterable[str]) -> None:
        """These are waited for no longer."""
        for group_id in group_ids:
            self._waits.pop(group_id, None)

    def story(self, group_id: str, here: int, now_s: float) -> str:
        """The end of a group in words, given how many of its rollouts are here."""
        wait = self._waits[group_id]
        of = f" of {wait.size}" if wait.size else ""
        return f"{here}{of} rollouts came within {now_s - wait.asked_s:.0f} s"
