"""Windows of traffic against a slow reference: one sorted list of the whole log, and nothing kept between windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightstream.runtime.clock import NANOS_PER_SECOND
from lightstream.runtime.deletions import Deletions
from lightstream.schemas.errors import SettingsError
from lightstream.schemas.records import (
    ConsumedTrajectory,
    LearningWindow,
    PartitionOffset,
    RewardRecord,
    RunDeleted,
    TrainingStep,
    Trajectory,
)
from lightstream.schemas.topics import TRAJECTORIES
from lightstream.trainers.rollouts.groups.source import LoggedTrajectory
from lightstream.trainers.rollouts.traffic import TrafficSource, Window, WindowRule
from lightstream.trainers.run import windows_past
from lightstream.trainers.run.progress import Progress
from lightstream.trainers.run.windows_past import WindowsPast
from tests.support.examples import examples

from .support.trajectories import make_trajectory, make_triplet

LOGGED_FROM_S = 1_000_000
"""Time stamps in Kafka begin here; the event times of the simulation are from 0 on."""


@dataclass(frozen=True)
class Event:
    """A record of the log: a trajectory's first record, a revision of it, or the same again."""

    rollout: int
    closed_s: int
    revision: int = 0
    revised_s: int = 0
    reward: float | None = None
    logged_s: int = 0
    agent: str = "support"
    run: str = ""

    @property
    def name(self) -> str:
        return f"r{self.rollout}"

    def trajectory(self) -> Trajectory:
        call = make_triplet([1, 2], [3], reward=self.reward).model_copy(update={"agent_name": self.agent})
        made = make_trajectory(self.name, run_id=self.run, revision=self.revision, reward=self.reward, triplets=[call])
        return made.model_copy(
            update={
                "closed_unix_nano": self.closed_s * NANOS_PER_SECOND,
                "revised_unix_nano": max(self.closed_s, self.revised_s) * NANOS_PER_SECOND,
                "rewards": [RewardRecord(value=self.reward, span_id="0" * 16)] if self.reward is not None else [],
            }
        )

    @property
    def time_s(self) -> int:
        return max(self.closed_s, self.revised_s)


Log = list[list[Event]]
"""Events of each partition, in the order of their offsets."""


class MemoryLog:
    """Partitions in memory, read in pieces that ``pieces`` decides; offsets are twice the place: others lie between."""

    def __init__(self, log: Log, pieces: Sequence[tuple[int, int]]) -> None:
        self._log = log
        self._pieces = list(pieces)
        self._next: dict[int, int] = {}
        self.undecodable = 0
        self.of_other_runs = 0
        self.consumer_group = None

    def start(self, low_water: Mapping[int, int]) -> None:
        self._next = {partition: low_water.get(partition, 0) for partition in range(len(self._log))}

    def poll(self, timeout_s: float) -> list[LoggedTrajectory]:
        partition, count = self._pieces.pop(0) if self._pieces else (-1, 1)
        chosen = range(len(self._log)) if partition < 0 else [partition % len(self._log)]
        found: list[LoggedTrajectory] = []
        for number in chosen:
            for place in range((self._next[number] + 1) // 2, len(self._log[number]))[:count]:
                event = self._log[number][place]
                logged = (LOGGED_FROM_S + event.logged_s) * NANOS_PER_SECOND
                found.append(LoggedTrajectory(event.trajectory(), number, 2 * place, logged))
                self._next[number] = 2 * place + 1
            if self._next[number] >= 2 * len(self._log[number]) - 1:
                self._next[number] = 2 * len(self._log[number])
        return found

    def whole(self, trajectory: Trajectory) -> Trajectory:
        return trajectory

    def end_offsets(self) -> dict[int, int]:
        return {partition: 2 * len(events) for partition, events in enumerate(self._log)}

    def has_read(self, ends: Mapping[int, int]) -> bool:
        return all(self._next[partition] >= end for partition, end in ends.items())

    @property
    def next_offsets(self) -> dict[int, int]:
        return dict(self._next)


def source_of(
    log: Log,
    rule: WindowRule,
    past: WindowsPast,
    pieces: Sequence[tuple[int, int]] = (),
    progress: Progress | None = None,
) -> TrafficSource:
    return TrafficSource(MemoryLog(log, pieces), rule, past, agent="support", progress=progress)


def step_of(window: Window, record: LearningWindow | None) -> TrainingStep:
    consumed = [*window.members, *(late.trajectory for late in window.late)]
    return TrainingStep(
        trainer_id="t",
        step=1,
        consumed=[
            ConsumedTrajectory(
                rollout_id=t.rollout_id,
                attempt_id=t.attempt_id,
                revision=t.revision,
                group_id=t.rollout_id,
                triplet_count=1,
            )
            for t in consumed
        ],
        window=record,
        started_unix_nano=0,
        ended_unix_nano=0,
    )


Told = tuple[int, int, int, tuple[tuple[str, int, float | None], ...], tuple[tuple[str, str], ...]]


def told(window: Window) -> Told:
    members = tuple((t.rollout_id, t.revision, t.reward) for t in window.members)
    late = tuple((one.trajectory.rollout_id, one.reason) for one in window.late)
    return window.number, window.start_unix_nano, window.end_unix_nano, members, late


def windows_of(
    log: Log, rule: WindowRule, pieces: Sequence[tuple[int, int]] = (), kills: Sequence[bool] = ()
) -> list[Told]:
    """The windows of a learner; after the windows where ``kills`` says so it is made again from what was committed."""
    past, made, restarts = WindowsPast(), list[Told](), list(kills)
    source = source_of(log, rule, past, pieces)
    while (window := source.next_window(to_end=True)) is not None:
        if restarts and restarts.pop(0):  # killed before its commit: nothing of it is known to the next one
            source = source_of(log, rule, past, pieces)
            again = source.next_window(to_end=True)
            assert again is not None
            window = again
        assert source.window is not None
        past.add_step(step_of(window, source.window))
        made.append(told(window))
        if restarts and restarts.pop(0):  # killed after its commit
            source = source_of(log, rule, past, pieces)
    return made


def reference(log: Log, rule: WindowRule) -> list[Told]:
    """Every record of the log in one order; for each prefix, which windows are closed by it, found from nothing."""
    placed: list[tuple[int, int, int, Event]] = []
    for partition, events in enumerate(log):
        newest = 0
        for offset, event in enumerate(events):
            newest = max(newest, event.logged_s)
            placed.append((newest, partition, offset, event))
    order = [event for *_, event in sorted(placed, key=lambda one: one[:3])]
    lateness = rule.lateness_s
    bounds = [LOGGED_FROM_S + event.logged_s + rule.ahead_s for event in order]
    made: list[Told] = []
    window_of: dict[str, int] = {}
    outside: dict[str, str] = {}
    listed: set[str] = set()
    newest_of: dict[str, Event] = {}
    closed: dict[int, None] = {}
    closed_at_mark = -1.0
    mark = 0.0

    def end(number: int) -> float:
        if rule.length_s is not None:
            return (number + 1) * rule.length_s
        return max(newest_of[name].closed_s for name, window in window_of.items() if window == number)

    def full(number: int) -> bool:
        return rule.count is None or sum(window == number for window in window_of.values()) >= rule.count

    for event, bound in zip(order, bounds, strict=True):
        is_ahead = event.closed_s > bound
        if event.time_s <= bound:
            mark = max(mark, event.time_s)
        for number in sorted(set(window_of.values()) - set(closed)):
            if not full(number) or end(number) + lateness > mark:
                break
            closed[number] = None
            closed_at_mark = mark
            names = sorted((n for n, w in window_of.items() if w == number), key=lambda n: int(n[1:]))
            times = [newest_of[name].closed_s for name in names]
            start_s, end_s = (min(times), max(times)) if rule.count else (number * rule.length_s, end(number))  # type: ignore[operator]
            late = sorted(outside.keys() - listed, key=lambda n: int(n[1:]))
            listed.update(late)
            made.append(
                (
                    number,
                    round(start_s * NANOS_PER_SECOND),
                    round(end_s * NANOS_PER_SECOND),
                    tuple((name, newest_of[name].revision, newest_of[name].reward) for name in names),
                    tuple((name, outside[name]) for name in late),
                )
            )
        if event.agent != "support":
            continue
        name = event.name
        if name in window_of:
            is_newer = event.revision > newest_of[name].revision
            if window_of[name] not in closed and not is_ahead and is_newer:
                newest_of[name] = event
            continue
        if name in outside:
            continue
        if is_ahead:
            outside[name] = "clock_ahead"
            continue
        if rule.length_s is not None:
            number = int(event.closed_s // rule.length_s)
            is_late = (number + 1) * rule.length_s + lateness <= mark
        else:
            newest = max([n for n in window_of.values() if n not in closed], default=len(closed) + 1)
            number = newest + 1 if full(newest) else newest
            is_late = closed_at_mark >= 0 and event.closed_s + lateness <= closed_at_mark
        if is_late:
            if event.revision == 0:
                outside[name] = "late"
            continue
        window_of[name], newest_of[name] = number, event
    return made


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """Rollouts with late, repeated and changed rewards; partitions out of step; clocks ahead; another agent's."""
    partitions = draw(st.integers(1, 4))
    log: Log = [[] for _ in range(partitions)]
    logged = [0] * partitions
    last: dict[int, Event] = {}
    for _ in range(draw(st.integers(1, 40))):
        known = draw(st.sampled_from(sorted(last))) if last and draw(st.integers(0, 2)) == 0 else None
        if known is None:
            rollout = len(last)
            closed_s = max(0, 3 * rollout + draw(st.integers(-30, 30)))
            if draw(st.integers(0, 15)) == 0:
                closed_s += 2 * LOGGED_FROM_S
            agent = draw(st.sampled_from(["support", "support", "support", "other"]))
            event = Event(rollout, closed_s, reward=draw(st.sampled_from([None, 0.0, 1.0])), agent=agent)
        else:
            before = last[known]
            how = draw(st.sampled_from(["again", "changed", "changed"]))
            event = before
            if how == "changed":
                revised_s = before.time_s + draw(st.integers(0, 40))
                if draw(st.integers(0, 8)) == 0:
                    revised_s += 2 * LOGGED_FROM_S
                reward = draw(st.sampled_from([0.0, 0.5, 1.0]))
                event = Event(known, before.closed_s, before.revision + 1, revised_s, reward, agent=before.agent)
        partition = event.rollout % partitions
        # A time stamp may go back within a partition: two writers.
        logged[partition] = max(0, logged[partition] + draw(st.integers(-2, 6)))
        event = Event(
            event.rollout, event.closed_s, event.revision, event.revised_s, event.reward, logged[partition], event.agent
        )
        last[event.rollout] = event
        log[partition].append(event)
    return log


RULES = st.one_of(
    st.builds(
        WindowRule, length_s=st.sampled_from([5, 10, 40]), lateness_s=st.sampled_from([0, 7, 30]), ahead_s=st.just(300)
    ),
    st.builds(WindowRule, count=st.integers(1, 5), lateness_s=st.sampled_from([0, 7, 30]), ahead_s=st.just(300)),
)
PIECES = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5)), max_size=30)
KILLS = st.lists(st.booleans(), max_size=20)


@settings(max_examples=examples(300), deadline=None)
@given(logs(), RULES, PIECES, KILLS)
def test_windows_are_those_of_the_reference_however_they_are_read_and_restarted(
    log: Log, rule: WindowRule, pieces: list[tuple[int, int]], kills: list[bool]
) -> None:
    expected = reference(log, rule)
    assert windows_of(log, rule) == expected
    assert windows_of(log, rule, pieces, kills) == expected
    members = [name for _, _, _, found, _ in expected for name, *_ in found]
    assert len(members) == len(set(members)), "each trajectory is in one window at most"


def test_a_late_reward_counts_within_the_lateness_and_not_after() -> None:
    rule = WindowRule(length_s=10, lateness_s=5)
    in_time = Event(0, 3, 1, 14, 1.0, logged_s=2)
    too_late = Event(0, 3, 2, 16, 0.0, logged_s=4)
    log = [[Event(0, 3, logged_s=1), in_time, too_late], [Event(1, 15, logged_s=3), Event(2, 40, logged_s=5)]]
    first, second = windows_of(log, rule)
    assert first[3] == (("r0", 1, 1.0),)
    assert [name for name, *_ in second[3]] == ["r1"]


def test_what_comes_after_its_window_is_named_once_with_a_reason() -> None:
    late, ahead = Event(1, 4, logged_s=3), Event(2, 5 * LOGGED_FROM_S, logged_s=4)
    log = [[Event(0, 3, logged_s=1), Event(3, 12, logged_s=2), late, late, ahead, Event(4, 30, logged_s=5)]]
    first, second = windows_of(log, WindowRule(length_s=10))
    assert first[4] == ()
    assert second[4] == (("r1", "late"), ("r2", "clock_ahead"))


def test_a_clock_ahead_drops_no_reward_and_is_named_once() -> None:
    hour = LOGGED_FROM_S + 3600
    thumb, other = Event(0, 3, 1, hour, 1.0, logged_s=2), Event(1, 4, 1, hour, 0.0, logged_s=4)
    ahead = [Event(number, hour, logged_s=5) for number in (7, 8)]
    log = [[Event(0, 3, logged_s=1), thumb, Event(1, 4, logged_s=3), other, *ahead, Event(2, 40, logged_s=6)]]
    past, said = WindowsPast(), list[str]()
    source = source_of(log, WindowRule(length_s=10, lateness_s=5), past, progress=Progress(said.append))
    window = source.next_window(to_end=True)
    assert window is not None
    assert told(window)[3:] == (
        (("r0", 1, 1.0), ("r1", 1, 0.0)),
        (("r7", "clock_ahead"), ("r8", "clock_ahead")),
    )
    assert window.watermark_unix_nano == 40 * NANOS_PER_SECOND
    assert [line.split(". ")[0] for line in said] == [
        "A reward of rollout r0 of agent support is dated 3,598 s ahead of Kafka's clock",
        "Rollout r7 of agent support ended 3,595 s ahead of Kafka's clock",
    ]
    assert all("Set the clock of the machine" in line for line in said)


@settings(max_examples=examples(300), deadline=None)
@given(logs(), RULES, PIECES, KILLS)
def test_a_learner_that_forgets_trajectories_makes_the_same_windows(
    log: Log, rule: WindowRule, pieces: list[tuple[int, int]], kills: list[bool]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows_past, "CONSUMED_REMEMBERED", 1)
        made = windows_of(log, rule, pieces, kills)
    # A repeated record of a late trajectory that is forgotten may be named late once more.
    assert [window[:4] for window in made] == [window[:4] for window in reference(log, rule)]


def test_a_reward_for_a_forgotten_trajectory_trains_it_no_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows_past, "CONSUMED_REMEMBERED", 1)
    log = [[
        *(Event(number, number, logged_s=number) for number in range(8)),
        Event(0, 0, 1, 1, 1.0, logged_s=8),  # long after its window
        *(Event(number, number, logged_s=number) for number in range(9, 14)),
    ]]  # fmt: skip
    made = windows_of(log, WindowRule(count=2, lateness_s=3), kills=[True] * 20)
    members = [name for _, _, _, found, _ in made for name, *_ in found]
    assert members == [f"r{number}" for number in (*range(8), *range(9, 13))][: len(members)]
    assert len(members) >= 8


def test_a_deleted_run_is_in_no_window_and_its_large_records_are_not_loaded() -> None:
    """Deleted before the learner came, and while the window was open, by count and by time."""
    gone = [Event(number, number, logged_s=number, run="live") for number in range(2)]
    log = [[*gone, *(Event(number, number, logged_s=number) for number in range(2, 8))]]
    ends = [PartitionOffset(topic=TRAJECTORIES.name, partition=0, offset=4)]  # of the first two records
    deleted = RunDeleted(run_id="live", positions=ends, deleted_unix_nano=1)
    for rule, members in ((WindowRule(length_s=4), ["r2", "r3"]), (WindowRule(count=2), ["r2", "r3"])):
        for meanwhile in (False, True):
            deletions, waiting, loaded = Deletions(), [False, True] if meanwhile else [True], list[str]()

            def read(deletions: Deletions = deletions, waiting: list[bool] = waiting) -> bool:
                if not waiting or not waiting.pop(0):
                    return False
                deletions.note(deleted)  # the same in each turn
                return True

            class Log(MemoryLog):
                def whole(self, trajectory: Trajectory) -> Trajectory:
                    loaded.append(trajectory.rollout_id)  # noqa: B023  # read in the same turn
                    return trajectory

            source = TrafficSource(Log(log, []), rule, WindowsPast(), deletions=deletions, read_deletions=read)
            window = source.next_window(to_end=True)
            assert window is not None
            assert [t.rollout_id for t in window.members] == members
            assert not window.late
            assert source.window is not None
            assert ("r0" in loaded) is meanwhile


def test_a_partition_without_records_holds_nothing_up() -> None:
    log = [[Event(0, 3, logged_s=1), Event(2, 22, logged_s=2)], []]
    past = WindowsPast()
    source = source_of(log, WindowRule(length_s=10), past)
    window = source.next_window()  # it is not asked to end: the end of the empty partition is enough
    assert window is not None
    assert [t.rollout_id for t in window.members] == ["r0"]


@pytest.mark.parametrize(
    "options", [{}, {"length_s": 1, "count": 1}, {"length_s": 0}, {"count": 0}, {"count": 1, "lateness_s": -1}]
)
def test_a_rule_without_sense_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(SettingsError):
        WindowRule(**options)  # type: ignore[arg-type]
