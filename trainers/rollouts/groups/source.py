"""Groups out of a log of trajectories: the requested ones, as they become complete."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from lightstream.schemas.records import RolloutMode, Trajectory
from lightstream.schemas.types import EnqueueRolloutRequest

from ...run.progress import Progress, rollouts_line
from ...run.settled import SettledGroups
from .collector import Arrival, Group, GroupCollector, SkippedGroups, group_id_of, natural_order
from .deadlines import Deadlines
from .waiting import Patience, groups_line

GroupBy: TypeAlias = "Callable[[Trajectory], tuple[str, int]]"
"""Names the group of a trajectory, and says with how many members it is complete."""

POLL_TIMEOUT_S = 0.2


@dataclass(frozen=True, slots=True)
class LoggedTrajectory:
    """A trajectory, where it is, and its time stamp in Kafka in nanoseconds (0 where there is none)."""

    trajectory: Trajectory
    partition: int
    offset: int
    logged_unix_nano: int = 0


class TrajectoryLog(Protocol):
    """Trajectories in the order in which they were written: a topic, or a recorded file."""

    @property
    def undecodable(self) -> int:
        """Number of records that were not trajectories."""
        ...

    @property
    def of_other_runs(self) -> int:
        """Number of records that were passed over, as they belong to other runs."""
        ...

    def start(self, low_water: Mapping[int, int]) -> None:
        """Read from these offsets on; partitions that are not named, from their beginning."""
        ...

    def poll(self, timeout_s: float) -> list[LoggedTrajectory]:
        """Takes records that have come; waits up to ``timeout_s`` seconds for a first one."""
        ...

    def whole(self, trajectory: Trajectory) -> Trajectory:
        """The trajectory, with all that its record left out."""
        ...

    def end_offsets(self) -> dict[int, int]:
        """Partition -> where the log ends now: see :meth:`has_read`."""
        ...

    def has_read(self, ends: Mapping[int, int]) -> bool:
        """Whether everything below these offsets was returned by :meth:`poll`, or passed over."""
        ...

    @property
    def next_offsets(self) -> dict[int, int]:
        """Partition -> the next offset to read."""
        ...

    @property
    def consumer_group(self) -> Any:
        """Metadata with which a transaction commits offsets; ``None`` where there are none to commit."""
        ...


class LoggedGroups:
    """The groups of one run, collected from a log. Not thread-safe; its iterators wait.

    Args:
        log: where trajectories come from.
        run_id: only trajectories of this run count.
        settled: what earlier steps consumed and skipped; what is taken and given up here is added at once.
        limit_s: a group is given up after this long without a trajectory of it, or of a group before it.
        enqueue: has rollouts made.
        check: called while waiting; raises where waiting is pointless.
        progress: is told what comes, and what is waited for.
        rollouts: says in a line what the run's open rollouts do.
        group_by: the group of each trajectory; ``None``: the one that its rollout was enqueued in.
        awaited: names of rewards that a rollout needs before it counts as here; however late they come.
    """

    def __init__(
        self,
        log: TrajectoryLog,
        run_id: str,
        *,
        settled: SettledGroups | None = None,
        limit_s: float,
        enqueue: Callable[[Sequence[EnqueueRolloutRequest]], object],
        check: Callable[[], None] = lambda: None,
        progress: Progress | None = None,
        rollouts: Callable[[], str] = str,
        group_by: GroupBy | None = None,
        awaited: Collection[str] = (),
    ) -> None:
        self._awaited = awaited
        self._log = log
        self._group_by = group_by
        self._enqueue = enqueue
        self._check = check
        self._progress = progress or Progress(None)
        self._rollouts = rollouts
        self._run_id = run_id
        self._train = GroupCollector(run_id, settled, awaited=awaited)
        self._validation = self._new_validation()
        self._expected_validation: set[str] = set()
        self._deadlines = Deadlines(limit_s)
        self._patience = Patience(time.monotonic())

    @property
    def limit_s(self) -> float:
        """Seconds without a trajectory after which a group is given up."""
        return self._deadlines.limit_s

    @property
    def skipped(self) -> frozenset[str]:
        """Groups of this run that are given up, by earlier steps too: the last of them at least."""
        return self._train.skipped

    @property
    def consumer_group(self) -> object:
        """The consumer group whose offsets :meth:`low_water` returns, as the ledger needs it."""
        return self._log.consumer_group

    def seek(self, low_water: Mapping[int, int]) -> None:
        """Read from these offsets on; partitions that are not named, from their beginning."""
        self._log.start(low_water)

    def ask(self, requests: Sequence[EnqueueRolloutRequest]) -> None:
        """Have rollouts made. Those of a group come together, and asking again for the same changes nothing."""
        self._enqueue(requests)
        sizes: dict[str, int] = {}
        for request in requests:
            group_id = request.group_id or request.rollout_id or ""
            sizes[group_id] = sizes.get(group_id, 0) + 1
            if request.mode == "val":
                self._expected_validation.add(group_id)
        now_s = time.monotonic()
        for group_id, size in sizes.items():
            self._deadlines.asked([group_id], now_s, size)

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
        return self._groups(self._train, group_ids, least, wait_s)

    def next_groups(self, count: int) -> list[Group]:
        """Take new records, or wait a moment for them: the ``count`` groups that were complete first; none while there
        are fewer."""
        if len(self._train.complete()) < count:
            self._receive()
            self._say_if_quiet(self._train.incomplete())
        complete = self._train.complete()
        return self._train.take(complete[:count]) if len(complete) >= count else []

    def reread(
        self, low_water: Mapping[int, int], identities: Collection[tuple[str, str, int]]
    ) -> dict[tuple[str, str, int], Trajectory]:
        """Trajectories that a step consumed, by (rollout_id, attempt_id, revision), as far as the log has them.

        Reads from ``low_water`` until all are there, or to the end of the log. :meth:`seek` has to follow.
        """
        self.seek(low_water)
        found: dict[tuple[str, str, int], Trajectory] = {}
        ends = self._log.end_offsets()
        while len(found) < len(identities) and not self._log.has_read(ends):
            self._check()
            for logged in self._log.poll(POLL_TIMEOUT_S):
                trajectory = logged.trajectory
                identity = trajectory.rollout_id, trajectory.attempt_id, trajectory.revision
                if identity in identities and identity not in found:
                    found[identity] = self._log.whole(trajectory)
        return found

    def give_up(self, group_ids: Collection[str]) -> None:
        """Wait no longer for these groups: :meth:`take_skipped` gives their past and later records."""
        for group_id in group_ids:
            self._train.skip(group_id)
        self._deadlines.end(group_ids)

    def validation_groups(self, group_ids: Collection[str]) -> list[Group]:
        """The same for groups of validation rollouts, all at once; none of them is part of a step."""
        groups = list(self._groups(self._validation, group_ids))
        self._expected_validation.difference_update(group_ids)
        if not self._expected_validation:
            self._validation = self._new_validation()  # what still comes of these is passed over
        return groups

    def take_skipped(self) -> SkippedGroups:
        """Return the trajectories of skipped groups that arrived since the last call. They count as consumed."""
        return self._train.take_skipped()

    def low_water(self) -> dict[int, int]:
        """Partition -> the offset below which nothing is needed any more, once the returned groups are committed."""
        return self._validation.low_water(self._train.low_water(self._log.next_offsets))

    def metrics(self) -> dict[str, float]:
        """Counts of records that came so far, and of records that were passed over."""
        metrics = {f"trajectories/{arrival.value}": float(n) for arrival, n in self._train.arrivals.items()}
        if self._log.undecodable:
            metrics["trajectories/undecodable"] = float(self._log.undecodable)
        if self._log.of_other_runs:
            metrics["trajectories/of_other_runs"] = float(self._log.of_other_runs)
        return metrics

    def _new_validation(self) -> GroupCollector:
        return GroupCollector(self._run_id, modes=(RolloutMode.VAL,), awaited=self._awaited)

    def _groups(
        self,
        collector: GroupCollector,
        group_ids: Collection[str],
        least: int | None = None,
        wait_s: float | None = None,
    ) -> Iterator[Group]:
        wanted = dict.fromkeys(group_id for group_id in group_ids if group_id not in collector.skipped)
        sizes = {group_id: self._deadlines.size(group_id) for group_id in wanted}
        began_s, failed = time.monotonic(), self._progress.failed
        self._patience.heard(time.monotonic())
        self._deadlines.asked(sorted(wanted, key=natural_order), time.monotonic())
        while wanted:
            complete = set(collector.complete(wanted))
            if complete:
                group_id = next(name for name in wanted if name in complete)
                del wanted[group_id]
                self._deadlines.end([group_id])
                yield collector.take([group_id])[0]
                continue
            self._receive()
            if all(sizes.values()):
                all_of_them, now_s = sum(sizes.values()), time.monotonic()
                came = all_of_them - sum(sizes[name] - here for name, here in collector.missing(wanted).items())
                line = rollouts_line(came, all_of_them, self._progress.failed - failed, now_s - began_s)
                self._progress.live(line, now_s)
            self._say_if_quiet(collector.missing(wanted))
            if self._deadlines.overdue(_not_here(collector, wanted), time.monotonic(), wait_s):
                self._read_to_the_end()
                now_s, missing = time.monotonic(), _not_here(collector, wanted)
                for group_id in sorted(self._deadlines.overdue(missing, now_s, wait_s), key=natural_order):
                    del wanted[group_id]
                    if group := self._end(collector, group_id, missing[group_id], now_s, least):
                        yield group

    def _receive(self) -> None:
        """Take in what has come, or wait a moment for it."""
        self._check()
        for logged in self._log.poll(POLL_TIMEOUT_S):
            self._patience.heard(time.monotonic())
            self._take_in(logged)

    def _take_in(self, logged: LoggedTrajectory) -> None:
        trajectory = self._log.whole(logged.trajectory)
        if self._group_by is not None:
            name, size = self._group_by(trajectory)
            trajectory = trajectory.model_copy(update={"group_id": name, "group_size": size})
        self._progress.saw(trajectory)
        group_id = group_id_of(trajectory)
        if trajectory.mode is not RolloutMode.VAL:
            collector = self._train
        elif group_id in self._expected_validation:
            collector = self._validation
        else:
            return
        arrival = collector.add(trajectory, logged.partition, logged.offset)
        if arrival in (Arrival.COUNTED, Arrival.AWAITS_REWARD):
            self._deadlines.came(group_id, time.monotonic())

    def _read_to_the_end(self) -> None:
        """Take in all that is in the log by now: it may have lain there unread, during a long update say."""
        ends = self._log.end_offsets()
        while not self._log.has_read(ends):
            self._receive()

    def _end(
        self, collector: GroupCollector, group_id: str, here: int, now_s: float, least: int | None
    ) -> Group | None:
        """Wait no longer for a group; returns it if enough of it is here."""
        story = self._deadlines.story(group_id, here, now_s)
        self._deadlines.end([group_id])
        if least is not None and here >= least:
            self._progress.say(f"Group {group_id} is taken as it is: {story}.")
            return collector.take_partial(group_id)
        self._progress.say(f"Group {group_id} is skipped: {story}.")
        collector.skip(group_id)
        return None

    def _say_if_quiet(self, missing: Mapping[str, int]) -> None:
        if quiet_s := self._patience.is_over(time.monotonic()):
            what = groups_line(missing) if missing else f"no trajectory of run {self._run_id!r} has come"
            if waiting := sum(sum(one.awaiting(missing).values()) for one in (self._train, self._validation)):
                names = ", ".join(map(repr, sorted(self._awaited)))
                what += f"; {waiting} rollouts have ended and lack the reward {names}. Is its judge running?"
            self._progress.say(f"Waiting; nothing has come for {quiet_s:.0f} s: {what}. {self._rollouts()}")


def _not_here(collector: GroupCollector, group_ids: Collection[str]) -> dict[str, int]:
    """As :meth:`GroupCollector.missing`, without groups that lack nothing but a reward: a judge that is away delays."""
    awaiting = collector.awaiting(group_ids)
    return {group_id: here for group_id, here in collector.missing(group_ids).items() if group_id not in awaiting}
