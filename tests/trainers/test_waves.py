"""Which rollouts are in progress when, and which groups a step takes, on recorded rollouts that come when told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError
from lightstream.schemas.records import RolloutMode, StepOutcome, Trajectory
from lightstream.schemas.types import EnqueueRolloutRequest, ProxyLLM
from lightstream.trainers.algorithms.recorded import RecordedTrajectories
from lightstream.trainers.ledger import MemoryLedger
from lightstream.trainers.loop.options import LoopOptions
from lightstream.trainers.loop.policy import policy_resources
from lightstream.trainers.loop.steps import Steps
from lightstream.trainers.loop.waves import Waves
from lightstream.trainers.rollouts.groups import group_id_of
from lightstream.trainers.rollouts.groups.source import LoggedGroups, LoggedTrajectory
from lightstream.trainers.rollouts.rollouts import Rollouts as RolloutsOfRun
from lightstream.trainers.run.history import replay
from lightstream.trainers.run.run import Run as TrainingRun
from lightstream.trainers.run.settled import SettledGroups
from lightstream.trainers.servers.following import NoServers

from .support.trajectories import random_trajectory

B, SIZE = 3, 2
NEVER = 10**9


class Rollouts(RecordedTrajectories):
    """Rollouts that come to the log one by one: each after so many others were polled for as it is told.

    Args:
        delay: polls after which a rollout that was asked for comes.
    """

    def __init__(self, delay: Callable[[str], int], make: Callable[[EnqueueRolloutRequest], Trajectory]) -> None:
        self.written: list[Trajectory] = []
        super().__init__(self.written, "run")
        self._delay = delay
        self._make = make
        self._coming: list[tuple[int, EnqueueRolloutRequest]] = []
        self.polls = 0
        self.asked: list[str] = []

    def enqueue(self, requests: Sequence[EnqueueRolloutRequest]) -> None:
        for request in requests:
            if request.rollout_id in self.asked:
                continue  # as a store: the same rollout is there already
            self.asked.append(request.rollout_id or "")
            self._coming.append((self.polls + self._delay(request.rollout_id or ""), request))

    def poll(self, timeout_s: float) -> list[LoggedTrajectory]:
        self.polls += 1
        assert self.polls < 10_000, f"nothing comes; waiting for {[r.rollout_id for _, r in self._coming]}"
        ready = [request for when, request in self._coming if when <= self.polls]
        self._coming = [(when, request) for when, request in self._coming if when > self.polls]
        self.written += [self._make(request) for request in ready]
        return super().poll(timeout_s)


class Run:
    """The waves of a run, whose steps are committed as they are taken."""

    def __init__(
        self,
        tmp_path: Path,
        delay: Callable[[str], int] = lambda _: 1,
        *,
        make: Callable[[EnqueueRolloutRequest], Trajectory] | None = None,
        limit_s: float = 1e6,
        ledger: MemoryLedger | None = None,
        rollouts: Rollouts | None = None,
        **options: Any,
    ) -> None:
        base: dict[str, Any] = {"steps": 12, "tasks_per_step": B, "rollouts_per_task": SIZE, "keep_checkpoints": 9}
        self.options = LoopOptions(**(base | options))
        self.rollouts = rollouts or Rollouts(delay, make or self.make)
        self.ledger = ledger or MemoryLedger(trainer_id="run", run_id="run")
        history = self.ledger.open()
        source = LoggedGroups(
            self.rollouts,
            "run",
            settled=history.settled,
            limit_s=limit_s,
            enqueue=self.rollouts.enqueue,
        )
        source.seek(history.low_water)
        run = TrainingRun(settings=Settings.load(data_dir=tmp_path), run_id="run", trainer_id="run", history=history)
        of_run = RolloutsOfRun(run=run, source=source, train_dataset=["a", "b", "c", "d"])
        self.steps = Steps(run=run, ledger=self.ledger, rollouts=of_run)
        self.waves = Waves(self.options, of_run)
        self.age: dict[str, int] = {}

    def make(self, request: EnqueueRolloutRequest) -> Trajectory:
        name = request.rollout_id or ""
        made = random_trajectory(
            name,
            group_id=request.group_id or "",
            group_size=request.group_size or 1,
            run_id="run",
            policy_version=0,
        )
        # Every group has a signal.
        return made.model_copy(update={"reward": float(name[-1]), "mode": RolloutMode(request.mode or "train")})

    def step(self) -> tuple[list[str], list[str]]:
        """Make a step; the names of its groups, and of those that were filtered out."""
        step = self.steps.run.last_step + 1
        before = len(self.rollouts.asked)
        self.waves.ask(step, again=False)
        for name in self.rollouts.asked[before:]:
            self.age.setdefault(name.rpartition("-")[0], step)
        taken = self.waves.take(step)
        for name in self.rollouts.asked:
            self.age.setdefault(name.rpartition("-")[0], step)
        self.steps.commit(step, taken.kept + taken.silent, started_unix_nano=0, outcome=StepOutcome.UPDATED)
        return [group.group_id for group in taken.kept], [group.group_id for group in taken.silent]


def test_with_remax_each_task_has_a_greedy_rollout_more(tmp_path: Path) -> None:
    run = Run(tmp_path, advantage="remax", steps_ahead=1, keep_checkpoints=9)
    assert run.step()[0] == [f"run-s1-g{g}" for g in range(B)]
    assert len(run.rollouts.asked) == 2 * B * (SIZE + 1)
    run.waves.ask(2, again=False)
    group = run.waves.take(2).kept[0]
    assert [t.mode.value for t in group.trajectories] == ["train"] * SIZE + ["test"]
    assert group.baseline is not None
    assert (group.baseline.rollout_id, len(group.sampled)) == (f"{group.group_id}-{SIZE}", SIZE)
    resources = policy_resources(run.options, run.steps, NoServers(), 3, tmp_path).resources["main_llm"]
    llm = ProxyLLM.model_validate_json(resources)
    sampling = {mode: llm.for_mode(mode).sampling_parameters["temperature"] for mode in ("train", "val", "test")}
    assert sampling == {"train": 1.0, "val": 1.0, "test": 0}


def slow_group(name: str) -> int:
    """Every wave has a group of which one rollout takes as long as a dozen others."""
    return 12 if name.endswith("g0-1") else 1


def test_without_steps_ahead_each_step_waits_for_its_own(tmp_path: Path) -> None:
    run = Run(tmp_path, slow_group)
    for step in range(1, 5):
        assert run.step()[0] == [f"run-s{step}-g{g}" for g in range(B)]
        assert len(run.rollouts.asked) == step * B * SIZE


@pytest.mark.parametrize("ahead", [1, 2, 4])
def test_rollouts_in_progress_and_ages_are_bounded_and_nothing_is_lost(tmp_path: Path, ahead: int) -> None:
    run = Run(tmp_path, slow_group, steps_ahead=ahead)
    taken: list[str] = []
    for step in range(1, run.options.steps + 1):
        groups, _ = run.step()
        assert len(groups) == B
        assert len(run.rollouts.asked) <= (ahead + step) * B * SIZE, "consumed or in progress"
        assert all(step - run.age[name] <= ahead for name in groups), "no policy is older"
        taken += groups
    assert Counter(taken) == Counter(f"run-s{step}-g{g}" for step in range(1, 13) for g in range(B)), "all, each once"
    assert run.steps.rollouts.skipped == frozenset()


def test_a_step_does_not_wait_for_a_slow_group_before_it_must(tmp_path: Path) -> None:
    """The first group comes late: steps 1 to 3 are made of the others, step 4 needs it."""
    run = Run(tmp_path, lambda name: 400 if name == "run-s1-g0-0" else 1, steps_ahead=3)
    for _ in range(3):
        groups, _ = run.step()
        assert "run-s1-g0" not in groups
        assert run.rollouts.polls < 100
    assert "run-s1-g0" in run.step()[0]
    assert run.rollouts.polls >= 400


def test_the_oldest_groups_are_taken_first(tmp_path: Path) -> None:
    run = Run(tmp_path, steps_ahead=2)
    assert [run.step()[0] for _ in range(3)] == [[f"run-s{step}-g{g}" for g in range(B)] for step in (1, 2, 3)]


def test_dropping_goes_on_without_slow_groups_and_asks_for_others(tmp_path: Path) -> None:
    run = Run(tmp_path, lambda name: NEVER if name.endswith("g0-1") else 1, steps_ahead=1, stale="drop")
    taken: list[str] = []
    for step in range(1, run.options.steps + 1):
        groups, _ = run.step()
        assert len(groups) == B
        assert all(step - run.age[name] <= 1 for name in groups)
        given_up = len(run.steps.rollouts.skipped)
        assert len(run.rollouts.asked) <= ((1 + step) * B + given_up) * SIZE, (
            "what was given up is no longer in progress"
        )
        taken += groups
    assert len(taken) == len(set(taken)) == 12 * B
    assert {name for name in run.steps.rollouts.skipped if "-s" in name} >= {f"run-s{step}-g0" for step in range(2, 12)}
    half = "run-s3-g0-0"
    consumed = {c.rollout_id: c for step in run.ledger.steps for c in step.consumed}
    assert (consumed[half].triplet_count, consumed[half].not_trained) == (0, {"group_skipped": 1})


def test_over_sampling_has_more_groups_in_progress_than_a_step_takes(tmp_path: Path) -> None:
    run = Run(tmp_path, lambda name: NEVER if name.endswith("g0-1") else 1, stale="drop", over_sampling=2)
    for step in range(1, 6):
        groups, _ = run.step()
        assert len(groups) == B
        assert all(run.age[name] == step for name in groups)
        assert len([name for name in run.age if run.age[name] == step]) == B + 2
    with pytest.raises(SettingsError, match="given over_sampling=2, but its stale is 'wait'"):
        Run(tmp_path, over_sampling=2)


def test_a_group_is_taken_with_those_that_came_in_time(tmp_path: Path) -> None:
    late = {"run-s1-g0-1", "run-s1-g1-0", "run-s1-g1-1"}
    run = Run(tmp_path, lambda name: NEVER if name in late else 1, limit_s=-1.0, group_min=1)
    run.step()
    (step,) = run.ledger.steps
    assert [c.rollout_id for c in step.consumed] == ["run-s1-g0-0", "run-s1-g2-0", "run-s1-g2-1"]
    assert all(c.triplet_count and not c.not_trained for c in step.consumed)
    assert step.skipped_groups == ["run-s1-g0", "run-s1-g1"]
    # What comes late is accounted for, and holds nothing back.
    run.rollouts.written.append(run.make(request("run-s1-g0-1")))
    run.step()
    assert {c.rollout_id: c.not_trained for c in run.ledger.steps[1].consumed}["run-s1-g0-1"] == {"group_skipped": 1}
    assert run.ledger.steps[1].low_water[0].offset == len(run.rollouts.written)
    with pytest.raises(SettingsError, match=r"group_min is 3; 1 to rollouts_per_task \(2\)"):
        Run(tmp_path, group_min=3)


def test_a_shorter_deadline_than_rollouts_may_take(tmp_path: Path) -> None:
    run = Run(tmp_path, lambda name: NEVER if name == "run-s1-g0-1" else 1, group_min=1, group_deadline_s=1e-6)
    assert sorted(run.step()[0]) == ["run-s1-g0", "run-s1-g1", "run-s1-g2"]
    assert run.steps.rollouts.skipped == {"run-s1-g0"}


def request(rollout_id: str) -> EnqueueRolloutRequest:
    return EnqueueRolloutRequest(input=None, rollout_id=rollout_id, group_id=rollout_id.rpartition("-")[0])


def silent_unless(signal: Callable[[str], bool]) -> Callable[[EnqueueRolloutRequest], Trajectory]:
    def make(asked: EnqueueRolloutRequest) -> Trajectory:
        name, group = asked.rollout_id or "", asked.group_id or ""
        made = random_trajectory(name, group_id=group, group_size=SIZE, run_id="run", policy_version=0)
        return made.model_copy(update={"reward": float(name[-1]) if signal(group) else 0.5})

    return make


def test_groups_without_a_signal_are_replaced(tmp_path: Path) -> None:
    signal = {"run-s1-g1", "run-x1", "run-x3"}
    run = Run(tmp_path, make=silent_unless(lambda group: group in signal or "-s2-" in group), refill_silent_groups=4)
    kept, silent = run.step()
    assert kept == ["run-s1-g1", "run-x1", "run-x3"]
    assert silent == ["run-s1-g0", "run-s1-g2", "run-x0", "run-x2"]
    assert len(run.ledger.steps[0].consumed) == 7 * SIZE, "filtered groups are consumed too"
    assert run.step() == ([f"run-s2-g{g}" for g in range(B)], [])


def test_refills_have_an_end_and_a_step_of_silent_groups_alone_counts(tmp_path: Path) -> None:
    run = Run(tmp_path, make=silent_unless(lambda group: group == "run-s2-g1"), refill_silent_groups=2)
    kept, silent = run.step()
    assert sorted(kept) == ["run-s1-g0", "run-s1-g1", "run-s1-g2", "run-x0", "run-x1"]
    assert silent == []
    kept, silent = run.step()
    assert kept == ["run-s2-g1"]
    assert silent == ["run-s2-g0", "run-s2-g2", "run-x2", "run-x3"]


@pytest.mark.parametrize("stale", ["wait", "drop"])
def test_a_restart_asks_for_nothing_new(tmp_path: Path, stale: str) -> None:
    """What was in progress when the trainer was killed is what the next one waits for; each group is in one step."""
    rollouts = Run(tmp_path, slow_group, steps_ahead=2, stale=stale).rollouts
    ledger = MemoryLedger(trainer_id="run", run_id="run")
    taken: list[str] = []
    for step in range(1, 9):
        run = Run(tmp_path, rollouts=rollouts, ledger=ledger, steps_ahead=2, stale=stale)  # a new process each step
        groups, _ = run.step()
        assert len(groups) == B
        given_up = len(run.steps.rollouts.skipped)
        assert len(rollouts.asked) <= ((2 + step) * B + given_up) * SIZE
        taken += groups
    assert len(taken) == len(set(taken)) == 8 * B
    assert {group_id_of(t) for t in rollouts.written} >= set(taken)


@pytest.mark.parametrize("options", [{}, {"steps_ahead": 2}, {"steps_ahead": 1, "stale": "drop"}], ids=str)
def test_what_is_remembered_does_not_grow_with_the_run(tmp_path: Path, options: dict[str, Any]) -> None:
    """A new process every ten steps, so that restarts are part of it."""
    slow = slow_group if options.get("stale") != "drop" else lambda name: NEVER if name.endswith("g0-1") else 1
    run = Run(tmp_path, slow, steps=120, **options)
    ledger, sizes = run.ledger, dict[int, int]()
    settled = run.steps.run.history.settled
    for step in range(1, 121):
        if step % 10 == 0:
            run = Run(tmp_path, rollouts=run.rollouts, ledger=ledger, steps=120, **options)
            settled = run.steps.run.history.settled
        run.step()
        sizes[step] = len(settled.consumed) - len(settled.skipped)
        assert settled == replay(ledger.steps, ledger.resources, trainer_id="run", run_id="run").settled
        assert all(f"run-s{past}-g{g}" in settled for past in range(1, settled.below_step) for g in range(B))
    assert max(sizes.values()) <= (2 * options.get("steps_ahead", 0) + 1) * B
    assert settled.below_step > 120 - 2 * options.get("steps_ahead", 0)
    names = [c.rollout_id for made in ledger.steps for c in made.consumed]
    assert len(names) == len(set(names))


def test_of_skipped_groups_the_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lightstream.trainers.run.settled.SKIPPED_KEPT", 3)
    settled = SettledGroups("run")
    for step in range(1, 9):
        settled.skip(f"run-s{step}-g0")
    settled.skip("of another kind")
    settled.advance(7)
    assert list(settled.skipped) == ["run-s7-g0", "run-s8-g0", "of another kind"]
    assert all(f"run-s{step}-g0" in settled for step in range(1, 9))
    assert "run-s9-g0" not in settled


def test_an_unknown_rule_for_stale_groups_is_refused() -> None:
    with pytest.raises(SettingsError, match="stale is 'mask'; there are wait, drop"):
        LoopOptions(steps=1, stale="mask")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the test
