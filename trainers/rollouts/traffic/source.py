"""Traffic from the log, window by window."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Protocol

from lightstream.runtime.clock import NANOS_PER_SECOND
from lightstream.runtime.deletions import Deletions
from lightstream.schemas.errors import ArtefactError, TrainingError
from lightstream.schemas.records import LearningWindow, RolloutMode, Trajectory
from lightstream.schemas.topics import TRAJECTORIES
from lightstream.schemas.types import EnqueueRolloutRequest

from ...run.progress import Progress
from ...run.windows_past import WindowsPast
from ..groups import Group, SkippedGroups
from ..groups.source import POLL_TIMEOUT_S, LoggedTrajectory, TrajectoryLog
from .log_order import Arrival, LogOrder
from .windows import Window, WindowRule, Windows, event_time, positions_of

SETTLED_AFTER_S = 5.0
"""A partition that was read to its end brings no record with a time stamp older than this: longer than a writer needs
from stamp to acknowledgement."""

END_EVERY_S = 0.5
"""How often the ends of the partitions are asked for while something waits for them."""

FOREVER = 2**63 - 1


class Clock(Protocol):
    """The time."""

    def __call__(self) -> int:
        """Nanoseconds since 1970."""
        ...


class TrafficSource:
    """The windows of one agent's traffic. Not thread-safe; :meth:`next_window` waits.

    Traffic are the final trajectories of training mode that belong to no group, of one run (by default of none).

    Args:
        log: where trajectories come from; it is started here.
        rule: how they are cut into windows.
        past: what earlier windows consumed.
        agent: only trajectories with a call of this agent; ``None``: all.
        deletions: of runs; a window that is closed has nothing of a run that was deleted before.
        read_deletions: adds new ones to them, and says whether there were any.
        progress: is told what is waited for.
        settled_after_s: see :data:`SETTLED_AFTER_S`.
    """

    def __init__(
        self,
        log: TrajectoryLog,
        rule: WindowRule,
        past: WindowsPast,
        *,
        agent: str | None = None,
        deletions: Deletions | None = None,
        read_deletions: Callable[[], bool] = lambda: False,
        progress: Progress | None = None,
        settled_after_s: float = SETTLED_AFTER_S,
        clock: Clock = time.time_ns,
    ) -> None:
        self._log = log
        self._past = past
        self._agent = agent
        self._deletions = deletions or Deletions()
        self._read_deletions = read_deletions
        self._read_deletions()
        self._progress = progress or Progress(None)
        self._settled_nanos = round(settled_after_s * NANOS_PER_SECOND)
        self._clock = clock
        self._windows = Windows(rule, past, self._belongs, self._tell_clock)
        self._told_clocks: set[tuple[str, ...]] = set()
        self._held: Arrival | None = None
        self._quiet: dict[int, int] = {}
        self._asked_ends_s = 0.0
        self._record: LearningWindow | None = None
        self._low_water: dict[int, int] = {}
        last = past.last
        positions = {} if last is None else {p.partition: p for p in last.positions}
        self._cut = {partition: position.offset for partition, position in positions.items()}
        log.start({partition: position.kept_from for partition, position in positions.items()})
        partitions = log.next_offsets
        self._before = LogOrder(partitions, {p: position.floor_unix_nano for p, position in positions.items()})
        floor = 0 if last is None else last.closed_at_unix_nano
        self._order = LogOrder(partitions, dict.fromkeys(positions, floor))
        self._restored = not self._cut

    @property
    def window(self) -> LearningWindow | None:
        """The record of the last window that :meth:`next_window` returned."""
        return self._record

    @property
    def windows(self) -> Windows:
        """The windows that are open."""
        return self._windows

    def next_window(self, *, to_end: bool = False, stop: Callable[[], bool] = lambda: False) -> Window | None:
        """Wait for the next window to close, and return it.

        A window that was returned counts as consumed: it must be the next step.

        Args:
            to_end: return ``None`` once all that is in the log now was read.
            stop: called while waiting; ``None`` is returned where it says so.
        """
        self._windows.committed()
        ends = self._log.end_offsets() if to_end else {}
        while not stop():
            if (window := self._advance()) is not None:
                return window
            if to_end and self._log.has_read(ends) and self._restored:
                if self._order.waits:
                    self._quiet = dict.fromkeys(ends, FOREVER)
                    continue
                return None
            self._receive()
        return None

    def _advance(self) -> Window | None:
        """Go on in the log's order, up to the close of a window."""
        if not self._restore():
            return None
        while True:
            if self._held is not None:
                if self._windows.has_closed and self._read_deletions():
                    self._windows.forget()
                if (window := self._windows.take()) is not None:
                    self._note(window, self._held)
                    return window
                self._windows.add(self._held)
                self._held = None
            self._held = next(self._order.pop(self._quiet), None)
            if self._held is None:
                return None
            self._windows.see(self._held)

    def _restore(self) -> bool:
        """Whether all records that earlier windows had read are here again."""
        if self._restored:
            return True
        reached = self._log.next_offsets
        if any(reached.get(partition, 0) < offset for partition, offset in self._cut.items()):
            return False
        for arrival in self._before.pop(dict.fromkeys(reached, FOREVER)):
            self._windows.restore(arrival)
        self._restored = True
        return True

    def _note(self, window: Window, closing: Arrival) -> None:
        read = self._order.next_offsets(self._log.next_offsets)
        read[closing.partition] = closing.offset
        positions = positions_of(read, self._windows.first_needed(), closing.order_unix_nano)
        self._record = window.record(positions, closing.order_unix_nano)
        self._low_water = {position.partition: position.kept_from for position in positions}

    def _receive(self) -> None:
        for logged in self._log.poll(POLL_TIMEOUT_S):
            self._take_in(logged)
        now_s = time.monotonic()
        if self._order.waits and now_s - self._asked_ends_s >= END_EVERY_S:
            self._asked_ends_s = now_s
            asked = self._clock()
            ends = self._log.end_offsets()
            reached = self._log.next_offsets
            for partition, end in ends.items():
                if reached.get(partition, 0) >= end:
                    self._quiet[partition] = asked - self._settled_nanos

    def _take_in(self, logged: LoggedTrajectory) -> None:
        trajectory = self._whole(logged)
        if trajectory.mode is not RolloutMode.TRAIN or trajectory.group_id is not None or not trajectory.final:
            return
        arrival = Arrival(trajectory, logged.partition, logged.offset, logged.logged_unix_nano)
        before = logged.offset < self._cut.get(logged.partition, 0)
        (self._before if before else self._order).push(arrival)

    def _whole(self, logged: LoggedTrajectory) -> Trajectory:
        """The trajectory; the record alone, which has its times, where its run was deleted."""
        if self._is_deleted(logged):
            return logged.trajectory
        try:
            return self._log.whole(logged.trajectory)
        except ArtefactError:
            if self._read_deletions() and self._is_deleted(logged):  # its file went meanwhile
                return logged.trajectory
            raise

    def _is_deleted(self, at: LoggedTrajectory | Arrival) -> bool:
        return self._deletions.covers(at.trajectory, TRAJECTORIES, at.partition, at.offset)

    def _belongs(self, arrival: Arrival) -> bool:
        if self._is_deleted(arrival):
            return False
        trajectory = arrival.trajectory
        if self._agent is None:
            return True
        agents = {call.agent_name for call in trajectory.triplets} | {drop.agent_name for drop in trajectory.drops}
        return self._agent in agents

    def _tell_clock(self, arrival: Arrival) -> None:
        """Say once for each agent that a clock is ahead."""
        trajectory, ends = arrival.trajectory, self._windows.ends_ahead(arrival)
        agents = sorted({call.agent_name for call in trajectory.triplets if call.agent_name})
        key = ("end" if ends else "reward", *agents)
        if key in self._told_clocks:
            return
        self._told_clocks.add(key)
        ahead_s = (event_time(trajectory) - arrival.logged_unix_nano) / NANOS_PER_SECOND
        of_agent = f" of agent {', '.join(agents)}" if agents else ""
        if ends:
            self._progress.say(
                f"Rollout {trajectory.rollout_id}{of_agent} ended {ahead_s:,.0f} s ahead of Kafka's clock. It is not "
                "learned from, and closes no window. Set the clock of the machine that runs the agent."
            )
        else:
            self._progress.say(
                f"A reward of rollout {trajectory.rollout_id}{of_agent} is dated {ahead_s:,.0f} s ahead of Kafka's "
                "clock. It counts, and closes no window. Set the clock of the machine that gave the reward."
            )

    # --- as the steps of a run need it

    @property
    def skipped(self) -> frozenset[str]:
        """None: there are no groups."""
        return frozenset()

    @property
    def limit_s(self) -> float:
        """Windows are waited for without a limit."""
        return float("inf")

    @property
    def consumer_group(self) -> object:
        """The consumer group whose offsets :meth:`low_water` returns."""
        return self._log.consumer_group

    def take_skipped(self) -> SkippedGroups:
        """Nothing: there are no groups."""
        return SkippedGroups([], [])

    def low_water(self) -> dict[int, int]:
        """Partition -> the first offset that later windows need, once the last window is committed."""
        return dict(self._low_water)

    def metrics(self) -> dict[str, float]:
        """Counts of records that were passed over."""
        counts = {
            "trajectories/undecodable": self._log.undecodable,
            "trajectories/of_other_runs": self._log.of_other_runs,
            "trajectories/late_revisions": self._windows.late_revisions,
        }
        return {name: float(count) for name, count in counts.items() if count}

    def seek(self, low_water: Mapping[int, int]) -> None:
        """Refused: windows go on from where they are."""
        raise _no_groups()

    def ask(self, requests: Sequence[EnqueueRolloutRequest]) -> None:
        """Refused: nobody enqueues traffic."""
        raise _no_groups()

    def groups(
        self, group_ids: Collection[str], *, least: int | None = None, wait_s: float | None = None
    ) -> Iterator[Group]:
        """Refused: there are no groups."""
        raise _no_groups()

    def reread(
        self, low_water: Mapping[int, int], identities: Collection[tuple[str, str, int]]
    ) -> dict[tuple[str, str, int], Trajectory]:
        """Refused: a learner goes on from its last committed step."""
        raise _no_groups()

    def give_up(self, group_ids: Collection[str]) -> None:
        """Refused: there are no groups."""
        raise _no_groups()

    def validation_groups(self, group_ids: Collection[str]) -> list[Group]:
        """Refused: nobody enqueues traffic."""
        raise _no_groups()


def _no_groups() -> TrainingError:
    return TrainingError("traffic has no groups, and nobody enqueues it.", next_step="Take its windows.")
