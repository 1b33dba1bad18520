"""Complete groups, each once, whatever the log repeats."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lightstream.schemas.records import AttemptStatus, RewardRecord, RolloutMode, Trajectory
from lightstream.trainers.rollouts.groups import Arrival, Deadlines, GroupCollector, SkippedGroups, natural_order
from lightstream.trainers.run.settled import SettledGroups

from .support.trajectories import make_trajectory


def member(group: int, sample: int, size: int = 2, **changes: object) -> Trajectory:
    options: dict[str, object] = {"group_id": f"run-s1-g{group}", "group_size": size}
    return make_trajectory(f"run-s1-g{group}-{sample}", **(options | changes))  # type: ignore[arg-type]  # checked there


def test_a_group_is_complete_with_its_last_member() -> None:
    collector = GroupCollector("run")
    assert collector.add(member(0, 0), 0, 5) is Arrival.COUNTED
    assert collector.complete() == []
    assert collector.missing(["run-s1-g0", "run-s1-g1"]) == {"run-s1-g0": 1, "run-s1-g1": 0}
    assert collector.low_water({0: 6}) == {0: 5}
    collector.add(member(0, 1), 0, 6)
    assert collector.complete() == ["run-s1-g0"]
    assert collector.low_water({0: 7}) == {0: 5}, "complete, but nobody has it yet"
    (group,) = collector.take(["run-s1-g0"])
    assert [t.rollout_id for t in group.trajectories] == ["run-s1-g0-0", "run-s1-g0-1"]
    assert collector.low_water({0: 7}) == {0: 7}


def test_what_does_not_count_holds_nothing_back() -> None:
    collector = GroupCollector("run")
    assert collector.add(member(0, 0, run_id="other"), 0, 0) is Arrival.NOT_OURS
    assert collector.add(member(0, 0, mode=RolloutMode.VAL), 0, 1) is Arrival.NOT_OURS
    assert collector.add(member(0, 0, final=False), 0, 2) is Arrival.NOT_FINAL
    assert collector.low_water({0: 3}) == {0: 3}


def test_a_rollout_without_a_group_is_its_own() -> None:
    collector = GroupCollector("run")
    collector.add(make_trajectory("alone"), 0, 0)
    assert collector.complete() == ["alone"]


def test_revisions() -> None:
    collector = GroupCollector("run")
    collector.add(member(0, 0, revision=1), 0, 0)
    assert collector.add(member(0, 0, revision=0), 0, 1) is Arrival.DUPLICATE
    assert collector.add(member(0, 0, revision=2, reward=7.0), 0, 2) is Arrival.REPLACED
    assert collector.low_water({0: 3}) == {0: 0}
    collector.add(member(0, 1), 0, 3)
    (group,) = collector.take(["run-s1-g0"])
    assert group.trajectories[0].reward == 7.0
    assert collector.add(member(0, 0, revision=3), 0, 4) is Arrival.REVISED_TOO_LATE
    assert collector.add(member(0, 0, revision=2), 0, 5) is Arrival.DUPLICATE
    assert collector.add(member(0, 0, attempt=2), 0, 6) is Arrival.REVISED_TOO_LATE, "what was trained stays so"
    assert collector.complete() == []
    assert collector.low_water({0: 7}) == {0: 7}


def test_of_a_rollout_that_was_put_back_into_the_queue_the_last_final_attempt_counts() -> None:
    collector = GroupCollector("run")
    collector.add(member(0, 0, reward=1.0), 0, 0)
    assert collector.add(member(0, 0, attempt=2, reward=2.0), 0, 1) is Arrival.REPLACED
    assert collector.add(member(0, 0, revision=1, reward=3.0), 0, 2) is Arrival.DUPLICATE, "of the first attempt"
    assert collector.low_water({0: 3}) == {0: 0}, "whoever reads again reads both"
    collector.add(member(0, 1), 0, 3)
    (group,) = collector.take(["run-s1-g0"])
    assert group.trajectories[0].reward == 2.0


def test_what_an_earlier_step_consumed_does_not_come_back() -> None:
    settled = SettledGroups("run")
    settled.consume("run-s1-g0", {"run-s1-g0-0": ("run-s1-g0-0-a1", 0)})
    collector = GroupCollector("run", settled)
    assert collector.add(member(0, 0), 0, 0) is Arrival.DUPLICATE
    assert collector.add(member(0, 0, revision=1), 0, 1) is Arrival.REVISED_TOO_LATE
    assert collector.add(member(0, 0, attempt=2), 0, 2) is Arrival.REVISED_TOO_LATE
    assert collector.add(member(0, 1), 0, 3) is Arrival.SETTLED
    settled.advance(2)
    assert not settled.consumed
    assert collector.add(member(0, 0, revision=1), 0, 4) is Arrival.SETTLED
    assert collector.low_water({0: 5}) == {0: 5}


def test_a_group_that_is_not_complete_cannot_be_taken() -> None:
    collector = GroupCollector("run")
    collector.add(member(0, 0, size=1), 0, 0)
    collector.add(member(1, 0), 0, 1)
    with pytest.raises(KeyError, match="run-s1-g1"):
        collector.take(["run-s1-g0", "run-s1-g1"])
    assert collector.complete() == ["run-s1-g0"], "nothing was removed"


def test_a_skipped_group_never_completes_and_holds_nothing_back_once_taken() -> None:
    settled = SettledGroups("run")
    settled.skip("run-s1-g1")
    collector = GroupCollector("run", settled)
    collector.add(member(0, 0), 0, 0)
    collector.skip("run-s1-g0")
    assert collector.skipped == {"run-s1-g0", "run-s1-g1"}
    assert collector.low_water({0: 1}) == {0: 0}, "it is in no step yet"
    taken = collector.take_skipped()
    assert taken.names == ["run-s1-g0"]
    (group,) = taken.came
    assert [t.rollout_id for t in group.trajectories] == ["run-s1-g0-0"]
    assert collector.low_water({0: 1}) == {0: 1}
    assert collector.add(member(0, 0), 0, 1) is Arrival.DUPLICATE
    assert collector.add(member(0, 1), 0, 2) is Arrival.GROUP_SKIPPED
    assert collector.add(member(1, 0), 0, 3) is Arrival.GROUP_SKIPPED
    assert collector.add(member(1, 1), 0, 4) is Arrival.GROUP_SKIPPED
    assert collector.complete() == []
    late = [t.rollout_id for group in collector.take_skipped().came for t in group.trajectories]
    assert late == ["run-s1-g0-1", "run-s1-g1-0", "run-s1-g1-1"]
    assert collector.take_skipped() == SkippedGroups([], [])
    assert collector.low_water({0: 5}) == {0: 5}


def test_the_time_of_a_group_begins_when_it_is_asked_for() -> None:
    deadlines = Deadlines(10.0)
    deadlines.asked(["a", "b"], 0.0, 2)
    deadlines.asked(["b", "c"], 5.0)
    assert deadlines.overdue(["a", "b", "c"], 10.0) == []
    assert deadlines.overdue(["a", "b", "c"], 11.0) == ["a", "b"]
    assert deadlines.overdue(["c"], 16.0) == ["c"]


def test_a_group_in_the_queue_behind_another_has_time_while_that_one_goes_on() -> None:
    deadlines = Deadlines(10.0)
    deadlines.asked(["a", "b", "c"], 0.0, 2)
    deadlines.came("b", 8.0)
    assert deadlines.overdue(["a", "b", "c"], 11.0) == ["a"], "what comes of later groups is no reason to wait"
    deadlines.end(["a"])
    deadlines.came("a", 15.0)
    deadlines.came("of nobody", 15.0)
    assert deadlines.overdue(["b", "c"], 19.0) == ["b", "c"]


def test_natural_order() -> None:
    names = ["r-s10-g0-1", "r-s2-g11-0", "r-s2-g2-10", "r-s2-g2-9"]
    assert sorted(names, key=natural_order) == ["r-s2-g2-9", "r-s2-g2-10", "r-s2-g11-0", "r-s10-g0-1"]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 4))
def test_every_trajectory_is_consumed_once_across_crashes(seed: int, groups: int, size: int) -> None:
    """A log with repeats; a reader that crashes anywhere and starts again at the low water it committed."""
    chance = random.Random(seed)
    log = [member(g, s, size) for g in range(groups) for s in range(size)]
    log += chance.choices(log, k=len(log) // 2)
    chance.shuffle(log)
    consumed: list[tuple[str, str, int]] = []
    committed_low = 0
    crashes = 3
    done = False
    while not done:
        settled = SettledGroups("run")
        for rollout_id, attempt_id, revision in consumed:
            settled.consume(rollout_id.rpartition("-")[0], {rollout_id: (attempt_id, revision)})
        collector = GroupCollector("run", settled)
        position = committed_low
        crash_at = chance.randint(position, len(log) + 1) if crashes else len(log) + 1
        while position < len(log):
            if position == crash_at:
                break
            collector.add(log[position], 0, position)
            position += 1
            if chance.random() < 0.3 and collector.complete():
                taken = collector.take(collector.complete()[:1])
                consumed += [(t.rollout_id, t.attempt_id, t.revision) for g in taken for t in g.trajectories]
                low = collector.low_water({0: position})[0]
                assert low >= committed_low, "the low-water mark never goes back"
                committed_low = low
        else:
            taken = collector.take(collector.complete())
            consumed += [(t.rollout_id, t.attempt_id, t.revision) for g in taken for t in g.trajectories]
            assert collector.low_water({0: position}) == {0: position}, "nothing is left"
            done = True
        crashes -= 1
    assert sorted(consumed) == sorted({(t.rollout_id, t.attempt_id, t.revision) for t in log})


def test_a_rollout_counts_once_it_has_the_rewards_that_it_awaits() -> None:
    def judged(sample: int, *names: str, revision: int = 0) -> Trajectory:
        rewards = [RewardRecord(name=name, value=0.5, span_id="0" * 16) for name in names]
        return member(0, sample, revision=revision).model_copy(update={"rewards": rewards})

    collector = GroupCollector("run", awaited=["judge", "tests"])
    failed = member(0, 0).model_copy(update={"status": AttemptStatus.FAILED})
    assert collector.add(failed, 0, 4) is Arrival.COUNTED, "it will have none"
    assert collector.add(judged(1, "tests"), 0, 5) is Arrival.AWAITS_REWARD
    assert collector.complete() == []
    assert collector.awaiting(["run-s1-g0", "run-s1-g1"]) == {"run-s1-g0": 1}
    assert collector.add(judged(1, "judge", revision=1), 0, 6) is Arrival.AWAITS_REWARD
    assert collector.low_water({0: 7}) == {0: 4}
    assert collector.add(judged(1, "judge", "tests", revision=2), 0, 7) is Arrival.COUNTED
    assert collector.awaiting(["run-s1-g0"]) == {}
    (group,) = collector.take(["run-s1-g0"])
    assert [(t.rollout_id, t.revision) for t in group.trajectories] == [("run-s1-g0-0", 0), ("run-s1-g0-1", 2)]
    assert collector.low_water({0: 8}) == {0: 8}


def test_a_group_that_is_skipped_while_it_awaits_a_reward_is_recorded_with_what_there_is() -> None:
    collector = GroupCollector("run", awaited=["judge"])
    collector.add(member(0, 0), 0, 0)
    assert collector.awaiting(["run-s1-g0"]) == {}, "a rollout is missing, too"
    collector.skip("run-s1-g0")
    assert [t.rollout_id for group in collector.take_skipped().came for t in group.trajectories] == ["run-s1-g0-0"]
    assert collector.low_water({0: 1}) == {0: 1}
    assert collector.add(member(0, 1), 0, 1) is Arrival.GROUP_SKIPPED


def test_an_attempt_that_awaits_a_reward_takes_the_place_of_an_earlier_one() -> None:
    reward = RewardRecord(name="judge", value=0.5, span_id="0" * 16)
    collector = GroupCollector("run", awaited=["judge"])
    collector.add(member(0, 0, size=1).model_copy(update={"rewards": [reward]}), 0, 0)
    assert collector.complete() == ["run-s1-g0"]
    assert collector.add(member(0, 0, size=1, attempt=2), 0, 1) is Arrival.AWAITS_REWARD
    assert collector.complete() == []
    assert collector.add(member(0, 0, size=1).model_copy(update={"rewards": [reward]}), 0, 2) is Arrival.DUPLICATE
    later = member(0, 0, size=1, attempt=2, revision=1).model_copy(update={"rewards": [reward]})
    assert collector.add(later, 0, 3) is Arrival.COUNTED
    (group,) = collector.take(["run-s1-g0"])
    assert [t.attempt_sequence for t in group.trajectories] == [2]


def test_of_a_group_that_is_taken_in_part_those_that_await_a_reward_are_skipped() -> None:
    collector = GroupCollector("run", awaited=["judge"])
    reward = RewardRecord(name="judge", value=0.5, span_id="0" * 16)
    collector.add(member(0, 0).model_copy(update={"rewards": [reward]}), 0, 0)
    collector.add(member(0, 1), 0, 1)
    assert [t.rollout_id for t in collector.take_partial("run-s1-g0").trajectories] == ["run-s1-g0-0"]
    assert collector.low_water({0: 2}) == {0: 0}
    assert [t.rollout_id for group in collector.take_skipped().came for t in group.trajectories] == ["run-s1-g0-1"]
    assert collector.low_water({0: 2}) == {0: 2}
