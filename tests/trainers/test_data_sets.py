"""Data sets as people pass them: taken for what they can only mean, or refused with what to pass."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lightstream.schemas.errors import TrainingError
from lightstream.trainers.run.data_sets import as_tasks
from lightstream.trainers.run.identity import identity_of_dataset


@pytest.mark.parametrize(
    ("given", "tasks"),
    [
        (["a", "b"], ["a", "b"]),
        (pd.DataFrame({"q": ["a", None], "n": [1.0, float("nan")]}), [{"q": "a", "n": 1.0}, {"q": None, "n": None}]),
        (pd.DataFrame({"q": [np.array([1, 2])]}, index=[7]), [{"q": [1, 2]}]),
        (pd.Series(["a", "b"], index=[3, 4]), ["a", "b"]),
        (np.arange(3), [0, 1, 2]),
        ({"b", "a", "c"}, ["a", "b", "c"]),
        ({"x": 1, "y": 2}.values(), [1, 2]),
    ],
)
def test_what_can_only_mean_a_list_is_one(given: Any, tasks: list[Any]) -> None:
    made = as_tasks(given)
    assert [made[index] for index in range(len(made))] == tasks
    assert identity_of_dataset(given) == identity_of_dataset(tasks)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"train": ["a"], "test": ["b"]}, r"keys train, test.*data\['train'\]"),
        ((task for task in "ab"), r"once.*list\(tasks\)"),
        ("a file", r"one text.*\[text\]"),
        (None, "NoneType, not a list"),
        ([], "no tasks"),
    ],
)
def test_anything_else_is_a_sentence(given: Any, says: str) -> None:
    with pytest.raises(TrainingError, match=says):
        identity_of_dataset(given)


@pytest.mark.parametrize(
    ("task", "says"),
    [
        ({"meta": [{"when": datetime.date(2026, 1, 2)}]}, r"task 10000 .* date is no JSON value.*\.meta\[0\]\.when"),
        ({"score": float("nan")}, r"task 10000 .* nan at \.score"),
        ({"tags": {1, 2}}, r"task 10000 .* set is no JSON value.*\.tags"),
    ],
)
def test_every_task_is_looked_at(task: Any, says: str) -> None:
    with pytest.raises(TrainingError, match=says):
        identity_of_dataset([{"q": "a"}] * 10_000 + [task])
