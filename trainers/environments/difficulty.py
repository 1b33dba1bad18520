"""Tasks by difficulty: a task whose rewards have all been alike teaches nothing, and is asked seldom."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import ServiceUnavailableError, TrainingError

from ..run.tasks import TasksOfStep, sample_indices
from .sets import TaskSet

REST_SHARE_MAX = 0.2


@dataclass(frozen=True, slots=True)
class TaskRate:
    """The pass rate of a task.

    Attributes:
        rollouts: how many of the last rollouts have a reward.
        low, high: the least and the greatest of these rewards.
    """

    rollouts: int
    low: float
    high: float


Rates = Callable[[TaskSet, TasksOfStep], Mapping[str, TaskRate]]
"""Id of a task -> what is known of it by the steps up to ``known_step``."""


def by_difficulty(
    tasks: TaskSet,
    rates: Rates | None = None,
    *,
    rest_share: float = 0.1,
    rollouts_min: int = 8,
    settings: Settings | None = None,
) -> TaskSet:
    """The set with pools: tasks whose last rewards are all alike rest, and are asked ``rest_share`` times as often.

    With rewards of 0 and 1 these are the tasks of a pass rate of 0 or 1. Others, and tasks that are little known, are
    asked equally often. The choice follows from the seed and from steps that are committed, so a restart makes it
    again. Rollouts beside those of the steps (``over_sampling``, ``refill_silent_groups``) have tasks of all kinds.

    Args:
        tasks: the set.
        rates: what is known of each task; by default, what the view says of the run.
        rest_share: above 0, at most 0.2, so that a task that becomes possible is found.
        rollouts_min: a task with fewer rewards is little known.
        settings: name the view; by default the environment's.

    Raises:
        TrainingError: ``rest_share`` is out of range.
    """
    if not 0 < rest_share <= REST_SHARE_MAX:
        raise TrainingError(f"rest_share is {rest_share}; above 0 and at most {REST_SHARE_MAX} is needed.")
    known = rates or partial(rates_of_view, settings or Settings.load())

    def choose(tasks: TaskSet, wanted: TasksOfStep) -> list[int]:
        if wanted.known_step < 1:
            return sample_indices(wanted.step, wanted.count, len(tasks), wanted.seed)
        found = known(tasks, wanted)
        weights = [rest_share if _rests(found.get(task.id), rollouts_min) else 1.0 for task in tasks.tasks]
        return _drawn(weights, wanted.count, random.Random(f"{wanted.seed}-{wanted.step}"))  # noqa: S311  # no secret

    return tasks.chosen_by(choose)


def rates_of_view(settings: Settings, tasks: TaskSet, wanted: TasksOfStep) -> Mapping[str, TaskRate]:
    """Read the rates of tasks from the view, by the rollouts that the run's steps consumed (``:task-rates``).

    Raises:
        ServiceUnavailableError: the view does not answer, has not read all of the log yet, or cuts the answer off.
    """
    from lightstream.store_views.client import ViewClient
    from lightstream.store_views.queries import named_query

    given: dict[str, Any] = {"run": wanted.run_id, "digest": tasks.digest, "step": wanted.known_step}
    sql, values = named_query("task-rates").statement(given)
    view = ViewClient(settings)
    try:
        answer = view.query(sql, "now", params=values)
    finally:
        view.close()
    if answer.rebuilding:
        raise ServiceUnavailableError(
            "the view has not read all of the log yet, so the rates of tasks are not known.",
            next_step="Start the run again when `lightstream status` shows no rebuilding.",
        )
    if answer.truncated:
        raise ServiceUnavailableError(
            f"the view cut the rates of the {len(tasks)} tasks off.",
            next_step="Use a smaller set, or rates of your own.",
        )
    rows = answer.dicts()
    return {row["task"]: TaskRate(row["rollouts"], row["low"], row["high"]) for row in rows}


def _rests(rate: TaskRate | None, rollouts_min: int) -> bool:
    return rate is not None and rate.rollouts >= rollouts_min and rate.low == rate.high


def _drawn(weights: Sequence[float], count: int, chance: random.Random) -> list[int]:
    """Positions drawn by weight, each about as often as its share says: as evenly as whole numbers allow."""
    order = list(range(len(weights)))
    chance.shuffle(order)
    pace = sum(weights) / count
    mark = chance.random() * pace
    drawn: list[int] = []
    passed = 0.0
    for index in order:
        passed += weights[index]
        while len(drawn) < count and mark < passed:
            drawn.append(index)
            mark += pace
    while len(drawn) < count:  # the sum of the floats fell short
        drawn.append(order[-1])
    chance.shuffle(drawn)
    return drawn
