"""Tasks from eight procedural data sets of ``reasoning-gym``, and their own verifiers."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, TypedDict

with warnings.catch_warnings():
    warnings.simplefilter("ignore", SyntaxWarning)  # a dependency of reasoning-gym compares with "is"
    import reasoning_gym

from .prompts import brief

__all__ = ["DATASETS", "Task", "sample_tasks", "score"]

DATASETS = (
    "chain_sum",
    "products",
    "letter_counting",
    "spell_backward",
    "gcd",
    "count_bits",
    "prime_factorization",
    "leg_counting",
)
DATASET_SIZE = 20_000
SEED = 1


class Task(TypedDict):
    """A task as it travels through the queue: which entry of which data set, its text, and how it is put."""

    dataset: str
    index: int
    question: str
    prompt: str


@cache
def _dataset(name: str) -> Any:
    return reasoning_gym.create_dataset(name, size=DATASET_SIZE, seed=SEED)


def sample_tasks(count: int, seed: int, *, put: Callable[[str], str] = brief) -> list[Task]:
    """``count`` tasks, drawn evenly from all data sets in an order that ``seed`` decides; ``put`` makes the prompts."""
    rng = random.Random(seed)
    tasks: list[Task] = []
    for _ in range(count):
        name = rng.choice(DATASETS)
        index = rng.randrange(DATASET_SIZE)
        question = _dataset(name)[index]["question"]
        tasks.append(Task(dataset=name, index=index, question=question, prompt=put(question)))
    return tasks


def score(task: Task, answer: str | None) -> float:
    """1.0 if the data set's own verifier gives full marks to ``answer``, else 0.0."""
    if answer is None:
        return 0.0
    data = _dataset(task["dataset"])
    return float(data.score_answer(answer, entry=data[task["index"]]) >= 1.0)
