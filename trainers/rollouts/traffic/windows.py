"""Windows of trajectories, by event time or by count, closed by a watermark. Pure; see :mod:`.log_order` for the order.

Invariants:

- A window's trajectories, and the revision of each, follow from the log's order and event times alone. A learner that
  was killed at any point and began again from the last committed window makes the same windows.
- A trajectory (rollout and attempt) is in one window at most. Its first record decides which one.
- The watermark is the greatest event time so far. A window closes once it is ``lateness`` beyond the window's end; what
  comes after that changes no closed window.
- A trajectory that comes later than that is in no window: the next one names it, with the reason ``late``.
- A record whose event time is ``ahead`` of its time stamp in Kafka moves no watermark: its writer's clock is wrong. If
  the attempt's end is ahead, its trajectory is in no window, with the reason ``clock_ahead``. If a reward alone is
  ahead, it counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from lightstream.runtime.clock import NANOS_PER_SECOND
from lightstream.schemas.errors import SettingsError
from lightstream.schemas.records import LearningWindow, Trajectory, WindowPosition

from ...run.windows_past import WindowsPast, key_of
from ..groups import natural_order
from .log_order import Arrival

LATE = "late"
CLOCK_AHEAD = "clock_ahead"


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRule:
    """How traffic is cut into windows.

    Attributes:
        length_s: length of a window in seconds of event time; ``None``: by count.
        count: trajectories of a window; ``None``: by time.
        lateness_s: seconds of event time that rewards and trajectories are waited for after a window's end.
        ahead_s: seconds that an event time may be ahead of its record's time stamp in Kafka.

    Raises:
        SettingsError: there is neither a length nor a count, or both, or a number is too small.
    """

    length_s: float | None = None
    count: int | None = None
    lateness_s: float = 0.0
    ahead_s: float = 300.0

    def __post_init__(self) -> None:
        if (self.length_s is None) == (self.count is None):
            raise SettingsError(
                "a window has a length or a count of trajectories.", next_step="Give one of the two: 1h, or 64."
            )
        if (self.length_s is not None and self.length_s <= 0) or (self.count is not None and self.count < 1):
            raise SettingsError("a window is longer than 0 s, or has at least one trajectory.")
        if self.lateness_s < 0 or self.ahead_s < 0:
            raise SettingsError("lateness and the allowance for clocks are at least 0 s.")

    @property
    def length_nanos(self) -> int | None:
        """The length in nanoseconds."""
        return None if self.length_s is None else max(1, round(self.length_s * NANOS_PER_SECOND))

    @property
    def lateness_nanos(self) -> int:
        """The lateness in nanoseconds."""
        return round(self.lateness_s * NANOS_PER_SECOND)

    def text(self) -> str:
        """The rule in words: a run that goes on keeps it."""
        size = f"{self.count} trajectories" if self.length_s is None else f"{self.length_s:g} s"
        return f"{size}, lateness {self.lateness_s:g} s"


@dataclass(frozen=True, slots=True)
class LateTrajectory:
    """A trajectory that is in no window, and why."""

    trajectory: Trajectory
    reason: str


@dataclass(frozen=True, slots=True)
class Window:
    """A closed window.

    Attributes:
        number, start_unix_nano, end_unix_nano, watermark_unix_nano: as in :class:`LearningWindow`.
        members: its trajectories, in the natural order of their rollouts' ids.
        late: what was in no window since the one before.
    """

    number: int
    start_unix_nano: int
    end_unix_nano: int
    watermark_unix_nano: int
    members: tuple[Trajectory, ...]
    late: tuple[LateTrajectory, ...] = ()

    def record(self, positions: list[WindowPosition], closed_at_unix_nano: int) -> LearningWindow:
        """The window as its step keeps it."""
        left_out: dict[str, int] = {}
        for one in self.late:
            left_out[one.reason] = left_out.get(one.reason, 0) + 1
        return LearningWindow(
            number=self.number,
            start_unix_nano=self.start_unix_nano,
            end_unix_nano=self.end_unix_nano,
            watermark_unix_nano=self.watermark_unix_nano,
            closed_at_unix_nano=closed_at_unix_nano,
            positions=positions,
            members=len(self.members),
            left_out=left_out,
        )


def event_time(trajectory: Trajectory) -> int:
    """Time of this revision, in nanoseconds."""
    return max(trajectory.revised_unix_nano, trajectory.closed_unix_nano)


@dataclass(slots=True)
class _Pending:
    """A trajectory that waits in an open window."""

    arrival: Arrival
    """Its first record, which decides its place."""
    trajectory: Trajectory
    """Its newest revision."""

    @property
    def time(self) -> int:
        return self.trajectory.closed_unix_nano

    @property
    def key(self) -> str:
        return key_of(self.trajectory.rollout_id, self.trajectory.attempt_id)


@dataclass(slots=True)
class _Open:
    members: dict[str, _Pending] = field(default_factory=dict[str, _Pending])


class Windows:
    """Cuts arrivals into windows. Not thread-safe.

    For each arrival in the log's order: :meth:`see` it, :meth:`take` windows until there is none, then :meth:`add` it.

    Args:
        rule: how.
        past: what earlier windows consumed; the caller adds each committed step to it.
        belongs: whether an arrival is traffic to learn from; others only move the watermark. What once belongs may
            cease to: see :meth:`forget`.
        on_ahead: told each arrival to learn from whose event time is ahead.
    """

    def __init__(
        self,
        rule: WindowRule,
        past: WindowsPast,
        belongs: Callable[[Arrival], bool] = lambda _: True,
        on_ahead: Callable[[Arrival], None] = lambda _: None,
    ) -> None:
        self._rule = rule
        self._past = past
        self._belongs = belongs
        self._on_ahead = on_ahead
        last = past.last
        self._number = 0 if last is None else last.number
        self._closed_any = last is not None
        self._watermark = 0 if last is None else last.watermark_unix_nano
        self._open: dict[int, _Open] = {}
        self._where: dict[str, int] = {}
        self._late: dict[str, tuple[Arrival, str]] = {}
        self._taken: dict[str, None] = {}
        self.late_revisions = 0
        """Revisions that came after their window had closed."""

    @property
    def watermark_unix_nano(self) -> int:
        """Greatest event time so far."""
        return self._watermark

    def restore(self, arrival: Arrival) -> None:
        """Take a record that earlier windows had read, and may have left to this one."""
        trajectory = arrival.trajectory
        key = key_of(trajectory.rollout_id, trajectory.attempt_id)
        if not self._belongs(arrival) or key in self._past.consumed or self.ends_ahead(arrival):
            return
        if self._rule.length_nanos is not None and self._number_of(trajectory) <= self._number and self._closed_any:
            return
        if self._rule.length_nanos is None and key not in self._where:
            # One that was consumed before it is no longer remembered was late then, as any that is consumed is.
            watermark = self._past.watermark_at(arrival.partition, arrival.offset)
            if watermark is not None and trajectory.closed_unix_nano + self._rule.lateness_nanos <= watermark:
                return
        self._take_in(arrival, key)

    def see(self, arrival: Arrival) -> None:
        """Move the watermark."""
        time = event_time(arrival.trajectory)
        if not self._is_ahead(arrival, time):
            self._watermark = max(self._watermark, time)
        elif self._belongs(arrival):
            self._on_ahead(arrival)

    @property
    def has_closed(self) -> bool:
        """Whether the watermark has closed a window that was not taken."""
        number = min(self._open, default=None)
        return (
            number is not None
            and self._is_full(self._open[number])
            and self._end(number) + self._rule.lateness_nanos <= self._watermark
        )

    def take(self) -> Window | None:
        """The next window that is closed by the watermark; ``None`` where there is none."""
        return self._close(min(self._open)) if self.has_closed else None

    def forget(self) -> None:
        """Take out of the open windows all that belongs no more, as if it had never come."""
        pending = sorted((p for window in self._open.values() for p in window.members.values()), key=_by_place)
        self._open.clear()
        self._where.clear()
        for one in pending:
            if self._belongs(one.arrival):
                number = self._number_of(one.trajectory)
                self._where[one.key] = number
                self._open.setdefault(number, _Open()).members[one.key] = one
        self._late = {key: late for key, late in self._late.items() if self._belongs(late[0])}

    def add(self, arrival: Arrival) -> None:
        """Take an arrival whose event time was seen."""
        trajectory = arrival.trajectory
        if not self._belongs(arrival):
            return
        key = key_of(trajectory.rollout_id, trajectory.attempt_id)
        if key not in self._where:
            if key in self._past.consumed or key in self._taken or key in self._late:
                self.late_revisions += trajectory.revision > 0
                return
            if self.ends_ahead(arrival):
                self._late[key] = arrival, CLOCK_AHEAD
                return
            if self._is_late(trajectory):
                if trajectory.revision:
                    self.late_revisions += 1
                else:
                    self._late[key] = arrival, LATE
                return
        elif self.ends_ahead(arrival):
            return
        self._take_in(arrival, key)

    def ends_ahead(self, arrival: Arrival) -> bool:
        """Whether its attempt ended ahead of its time stamp in Kafka."""
        return self._is_ahead(arrival, arrival.trajectory.closed_unix_nano)

    def first_needed(self) -> dict[int, tuple[int, int]]:
        """Partition -> the first offset that an open window needs, and its time in the log's order."""
        first: dict[int, tuple[int, int]] = {}
        for window in self._open.values():
            for pending in window.members.values():
                one = pending.arrival
                if one.offset < first.get(one.partition, (one.offset + 1, 0))[0]:
                    first[one.partition] = one.offset, one.order_unix_nano
        return first

    def open_windows(self) -> list[Window]:
        """The windows that are not closed yet, as they would be now."""
        return [self._window(number, self._open[number]) for number in sorted(self._open)]

    def committed(self) -> None:
        """The last window that was taken is part of the past."""
        self._taken.clear()

    # --- inside

    def _take_in(self, arrival: Arrival, key: str) -> None:
        trajectory = arrival.trajectory
        number = self._where.get(key)
        if number is None:
            number = self._number_of(trajectory)
            self._where[key] = number
            self._open.setdefault(number, _Open()).members[key] = _Pending(arrival, trajectory)
            return
        pending = self._open[number].members[key]
        if trajectory.revision > pending.trajectory.revision:
            pending.trajectory = trajectory

    def _number_of(self, trajectory: Trajectory) -> int:
        length = self._rule.length_nanos
        if length is not None:
            return trajectory.closed_unix_nano // length
        newest = max(self._open, default=self._number + 1)
        window = self._open.get(newest)
        return newest + 1 if window is not None and self._is_full(window) else newest

    def _is_full(self, window: _Open) -> bool:
        return self._rule.count is None or len(window.members) >= self._rule.count

    def _end(self, number: int) -> int:
        length = self._rule.length_nanos
        if length is not None:
            return (number + 1) * length
        return max(pending.time for pending in self._open[number].members.values())

    def _is_late(self, trajectory: Trajectory) -> bool:
        """Whether its window would have closed."""
        length, lateness = self._rule.length_nanos, self._rule.lateness_nanos
        if length is not None:
            return ((self._number_of(trajectory) + 1) * length) + lateness <= self._watermark
        last = self._past.last
        return last is not None and trajectory.closed_unix_nano + lateness <= last.watermark_unix_nano

    def _is_ahead(self, arrival: Arrival, time_unix_nano: int) -> bool:
        return time_unix_nano - arrival.logged_unix_nano > self._rule.ahead_s * NANOS_PER_SECOND

    def _window(self, number: int, of: _Open) -> Window:
        length = self._rule.length_nanos
        times = [pending.time for pending in of.members.values()]
        start, end = (min(times), max(times)) if length is None else (number * length, (number + 1) * length)
        members = sorted((pending.trajectory for pending in of.members.values()), key=_by_id)
        late = [LateTrajectory(arrival.trajectory, reason) for arrival, reason in self._late.values()]
        late.sort(key=lambda one: _by_id(one.trajectory))
        return Window(number, start, end, self._watermark, tuple(members), tuple(late))

    def _close(self, number: int) -> Window:
        window = self._window(number, self._open.pop(number))
        self._number, self._closed_any = number, True
        for trajectory in (*window.members, *(one.trajectory for one in window.late)):
            key = key_of(trajectory.rollout_id, trajectory.attempt_id)
            self._where.pop(key, None)
            self._taken[key] = None
        self._late.clear()
        return window


def _by_id(trajectory: Trajectory) -> tuple[object, str]:
    return natural_order(trajectory.rollout_id), trajectory.attempt_id


def _by_place(pending: _Pending) -> tuple[int, int, int]:
    return pending.arrival.place


def positions_of(
    read: Mapping[int, int], needed: Mapping[int, tuple[int, int]], floor_unix_nano: int
) -> list[WindowPosition]:
    """Where each partition is at the close of a window.

    Args:
        read: partition -> the first offset that was not added.
        needed: see :meth:`Windows.first_needed`.
        floor_unix_nano: time in the log's order of the record that closed the window.
    """
    return [
        WindowPosition(
            partition=partition,
            offset=offset,
            kept_from=needed.get(partition, (offset, 0))[0],
            floor_unix_nano=needed.get(partition, (0, floor_unix_nano))[1],
        )
        for partition, offset in sorted(read.items())
    ]
