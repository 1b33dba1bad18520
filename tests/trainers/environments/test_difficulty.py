"""Pools by difficulty: how often tasks are asked, and what a learner gains by it."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from typing import Any

import pytest

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import ServiceUnavailableError, TrainingError
from lightstream.store_views.client import QueryResult, ViewClient
from lightstream.trainers.environments import TaskRate, TaskSet, by_difficulty, task_set
from lightstream.trainers.environments.difficulty import rates_of_view
from lightstream.trainers.run.tasks import TasksOfStep, tasks_of_step

TASKS, GROUPS, SAMPLES, STEPS, LAST = 60, 8, 8, 150, 32
GAIN = 0.5


class Learner:
    """A policy of one skill for each task, which a group raises as far as its rewards differ.

    A third of the tasks is impossible, a third is solved from the begin, and a third can be learned.
    """

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(f"learner-{seed}")
        self.skill = {str(n): (-math.inf, math.inf, -2.0)[n % 3] for n in range(TASKS)}
        self.rewards: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=LAST))

    def p(self, task: str) -> float:
        return (
            1 / (1 + math.exp(-self.skill[task])) if abs(self.skill[task]) < math.inf else float(self.skill[task] > 0)
        )

    def train(self, task: str) -> None:
        rewards = [float(self._chance.random() < self.p(task)) for _ in range(SAMPLES)]
        self.rewards[task].extend(rewards)
        mean = sum(rewards) / SAMPLES
        if math.isfinite(self.skill[task]):
            self.skill[task] += GAIN * 4 * mean * (1 - mean)

    def mean(self) -> float:
        return sum(self.p(task) for task in self.skill) / TASKS

    def rates(self, _tasks: TaskSet, _wanted: TasksOfStep) -> Mapping[str, TaskRate]:
        return {task: TaskRate(len(found), min(found), max(found)) for task, found in self.rewards.items()}


def trained(tasks: TaskSet, learner: Learner, seed: int) -> tuple[float, Counter[str]]:
    """The learner's mean reward after so many steps, and how often each task was asked in their second half."""
    asked = Counter[str]()
    for step in range(1, STEPS + 1):
        wanted = TasksOfStep(run_id="run", seed=seed, step=step, count=GROUPS, known_step=step - 1)
        for index in tasks_of_step(tasks, wanted):
            task = tasks.tasks[index].id
            learner.train(task)
            if step > STEPS // 2:
                asked[task] += 1
    return learner.mean(), asked


@pytest.mark.parametrize("seed", range(5))
def test_pools_ask_for_tasks_that_teach(seed: int) -> None:
    tasks = task_set("numbers", list(range(TASKS)))
    uniform, _ = trained(tasks, Learner(seed), seed)
    learner = Learner(seed)
    pooled, _ = trained(by_difficulty(tasks, learner.rates), learner, seed)
    assert pooled >= uniform
    assert pooled > 0.5, "the third that can be learned is learned in part"


def test_tasks_of_p_0_or_1_are_asked_a_fifth_as_often_at_most() -> None:
    tasks = task_set("numbers", list(range(TASKS)))
    alike = {str(n): TaskRate(LAST, 0.0, 0.0) if n % 2 else TaskRate(LAST, 1.0, 1.0) for n in range(40)}
    others = {str(n): TaskRate(LAST, 0.0, 1.0) for n in range(40, 50)}  # and ten tasks are unknown
    pools = by_difficulty(tasks, lambda _tasks, _wanted: alike | others)
    asked = Counter[int]()
    for step in range(2, 400):
        asked.update(
            tasks_of_step(pools, TasksOfStep(run_id="run", seed=1, step=step, count=GROUPS, known_step=step - 1))
        )
    resting = sum(asked[n] for n in range(40)) / 40
    teaching = sum(asked[n] for n in range(40, TASKS)) / 20
    assert 0 < resting <= teaching / 5
    assert min(asked[n] for n in range(TASKS)) > 0, "each is asked now and then"


def test_the_choice_follows_from_the_seed_and_from_committed_steps() -> None:
    tasks = task_set("numbers", list(range(TASKS)))
    seen: list[int] = []

    def rates(_tasks: TaskSet, wanted: TasksOfStep) -> Mapping[str, TaskRate]:
        seen.append(wanted.known_step)
        return {"0": TaskRate(LAST, 0.0, 0.0)}

    def chosen(seed: int, known: int) -> list[int]:
        wanted = TasksOfStep(run_id="run", seed=seed, step=7, count=GROUPS, known_step=known)
        return tasks_of_step(by_difficulty(tasks, rates), wanted)

    assert chosen(1, 5) == chosen(1, 5) != chosen(2, 5)
    assert len(chosen(1, 0)) == GROUPS
    assert seen == [5, 5, 5], "nothing is asked before a step is committed"


@pytest.mark.parametrize("share", [0.0, 0.21, -1.0])
def test_a_share_out_of_range_is_named(share: float) -> None:
    given: Any = share
    with pytest.raises(TrainingError, match=r"at most 0\.2"):
        by_difficulty(task_set("one", ["a"]), rest_share=given)


@pytest.mark.parametrize(("flag", "problem"), [("rebuilding", "has not read all of the log"), ("truncated", "cut")])
def test_rates_that_are_not_whole_are_refused(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, flag: str, problem: str
) -> None:
    flags = {"truncated": False, "rebuilding": False} | {flag: True}
    answer = QueryResult(columns=["task"], types=["VARCHAR"], rows=[], **flags)
    monkeypatch.setattr(ViewClient, "query", lambda *_given, **_named: answer)
    wanted = TasksOfStep(run_id="run", seed=1, step=2, count=1, known_step=1)
    with pytest.raises(ServiceUnavailableError, match=problem):
        rates_of_view(settings, task_set("one", ["a"]), wanted)
