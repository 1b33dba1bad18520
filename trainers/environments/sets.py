"""A versioned set of tasks: its digest changes with any task, and each rollout is recorded with it."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from lightstream.schemas.errors import TrainingError

from ..run.data_sets import checked_json
from ..run.tasks import TasksOfStep, sample_indices

DIGEST_SHOWN = 12
METADATA_KEY = "task"
"""Of the metadata of a rollout: set, digest, split, id and metadata of its task."""


@dataclass(frozen=True, slots=True)
class Task:
    """One task.

    Attributes:
        id: unique in its set.
        input: JSON value, the input of its rollouts.
        metadata: JSON values that agents are not given: an answer, a level.
        split: part of the set that it belongs to; empty: none.
    """

    id: str
    input: Any
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    split: str = ""


Choice = Callable[["TaskSet", TasksOfStep], list[int]]
"""The positions of the tasks of a step. Repeatable: the same wish has the same answer."""


class TaskSet:
    """Tasks under a name and a digest; a data set for ``Trainer.fit``, whose items are the tasks' inputs.

    Immutable: methods that change something return another set. A part chooses its tasks as the whole does.

    Args:
        name: names the set in the log.
        tasks: its tasks.

    Attributes:
        digest: SHA-256 of the tasks as canonical JSON, splits included. A part of a set has the digest of the whole.

    Raises:
        TrainingError: the set has no task, two of one id, or one that is no JSON value.
    """

    def __init__(self, name: str, tasks: Iterable[Task]) -> None:
        self.name = name
        self.tasks: Sequence[Task] = tuple(tasks)
        self.digest = _digest(name, self.tasks)
        self._part = ""
        self._choice: Choice | None = None

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, index: int) -> Any:
        return self.tasks[index].input

    def __repr__(self) -> str:
        return f"TaskSet({self.identity})"

    @property
    def identity(self) -> str:
        """Name, digest, part and size, as a run keeps them."""
        part = f", {self._part}" if self._part else ""
        return f"{self.name} {self.digest[:DIGEST_SHOWN]}{part}, {len(self)} tasks"

    def metadata_of(self, index: int) -> Mapping[str, Any]:
        """The metadata of the rollouts of a task."""
        return {METADATA_KEY: metadata_of(self.name, self.digest, self.tasks[index])}

    @property
    def splits(self) -> list[str]:
        """The names of the splits, in order."""
        return sorted({task.split for task in self.tasks if task.split})

    def split(self, name: str) -> TaskSet:
        """The tasks of a split.

        Raises:
            TrainingError: there is none of that name.
        """
        if name not in self.splits:
            known = ", ".join(self.splits)
            raise TrainingError(
                f"the task set {self.name!r} has no split {name!r}.",
                next_step=f"It has {known}." if known else "Make some: task_set.split_by(train=0.9, validation=0.1).",
            )
        return self._part_of(name, [task for task in self.tasks if task.split == name])

    def split_by(self, *, seed: int = 0, **shares: float) -> TaskSet:
        """The same tasks in new splits of these shares, which add up to 1. The digest is another.

        Raises:
            TrainingError: the shares do not add up to 1, or leave a split without a task.
        """
        if not shares or min(shares.values()) <= 0 or abs(sum(shares.values()) - 1) > 1e-9:
            raise TrainingError(
                f"the shares of the splits are {shares}, and not above 0 with a sum of 1.",
                next_step="For example split_by(train=0.9, validation=0.1).",
            )
        order = list(range(len(self)))
        random.Random(f"split-{seed}").shuffle(order)  # noqa: S311  # an order, not a secret
        split_of: dict[int, str] = {}
        start, share_so_far = 0, 0.0
        for name, share in shares.items():
            share_so_far += share
            end = round(share_so_far * len(self))
            if start == end:
                raise TrainingError(f"split {name!r} has none of {len(self)} tasks.", next_step="Give it more.")
            split_of |= dict.fromkeys(order[start:end], name)
            start = end
        made = TaskSet(
            self.name, [Task(task.id, task.input, task.metadata, split_of[i]) for i, task in enumerate(self.tasks)]
        )
        made._choice = self._choice
        return made

    def take(self, count: int) -> TaskSet:
        """The first tasks."""
        return self._part_of(f"{self._part + ' ' if self._part else ''}first {count}", self.tasks[:count])

    def repeated(self, times: int) -> TaskSet:
        """The set with each task so often in each pass."""
        if times < 1:
            raise TrainingError(f"tasks cannot be repeated {times} times.", next_step="Give 1 or more.")
        return self._chosen_by(
            lambda tasks, wanted: [
                index % len(tasks)
                for index in sample_indices(wanted.step, wanted.count, times * len(tasks), wanted.seed)
            ]
        )

    def in_order_of(self, key: str) -> TaskSet:
        """The set with a curriculum: its first pass is in the order of a number of the metadata, others at random.

        Raises:
            TrainingError: a task has no such number.
        """
        for task in self.tasks:
            if not isinstance(task.metadata.get(key), int | float):
                raise TrainingError(
                    f"task {task.id!r} of {self.name!r} has no number {key!r} in its metadata: "
                    f"{task.metadata.get(key)!r:.100}.",
                    next_step="Give one to every task.",
                )

        def choose(tasks: TaskSet, wanted: TasksOfStep) -> list[int]:
            order = sorted(range(len(tasks)), key=lambda index: (tasks.tasks[index].metadata[key], index))
            places = range((wanted.step - 1) * wanted.count, wanted.step * wanted.count)
            later = sample_indices(wanted.step, wanted.count, len(tasks), wanted.seed)
            return [order[place] if place < len(order) else later[n] for n, place in enumerate(places)]

        return self._chosen_by(choose)

    def chosen_by(self, choice: Choice) -> TaskSet:
        """The set with a choice of the tasks of each step; see :func:`.difficulty.by_difficulty`."""
        return self._chosen_by(choice)

    def choose(self, wanted: TasksOfStep) -> list[int]:
        """Positions of the tasks of a step: by default every task once in each pass, at random."""
        if self._choice is None:
            return sample_indices(wanted.step, wanted.count, len(self), wanted.seed)
        return self._choice(self, wanted)

    def _part_of(self, part: str, tasks: Sequence[Task]) -> TaskSet:
        made = object.__new__(TaskSet)
        made.name, made.tasks, made.digest = self.name, tuple(tasks), self.digest
        made._part, made._choice = part, self._choice
        return made

    def _chosen_by(self, choice: Choice) -> TaskSet:
        if self._choice is not None:
            raise TrainingError(
                f"the task set {self.name!r} has a choice of tasks already, and one at a time is effective.",
                next_step="Leave out one of repeated, in_order_of, by_difficulty and chosen_by.",
            )
        made = self._part_of(self._part, self.tasks)
        made._choice = choice
        return made


def metadata_of(name: str, digest: str, task: Task) -> dict[str, Any]:
    """The metadata by which a rollout names its task."""
    noted: dict[str, Any] = {"set": name, "digest": digest, "id": task.id}
    if task.split:
        noted["split"] = task.split
    if task.metadata:
        noted["metadata"] = dict(task.metadata)
    return noted


def task_from(input: Any, metadata: Mapping[str, Any] | None) -> tuple[Task, str, str]:  # noqa: A002  # the field's name
    """The task of a rollout, with name and digest of its set; of a rollout of another data set these are empty."""
    noted = cast("Mapping[str, Any]", (metadata or {}).get(METADATA_KEY) or {})
    task = Task(str(noted.get("id", "")), input, noted.get("metadata") or {}, noted.get("split", ""))
    return task, str(noted.get("set", "")), str(noted.get("digest", ""))


def _digest(name: str, tasks: Sequence[Task]) -> str:
    if not tasks:
        raise TrainingError(f"the task set {name!r} has no tasks.", next_step="Give it at least one.")
    rows: list[Any] = [[task.id, task.input, dict(task.metadata), task.split] for task in tasks]
    digest = hashlib.sha256()
    known: set[str] = set()
    for index, task in enumerate(tasks):
        if task.id in known:
            raise TrainingError(
                f"two tasks of {name!r} have the id {task.id!r}.", next_step="Give each an id of its own, or none."
            )
        known.add(task.id)
        try:
            text = checked_json(rows, index)
        except TrainingError as error:
            raise TrainingError(f"task {task.id!r} of {name!r}: {error.message}", next_step=error.next_step) from error
        digest.update(json.dumps(json.loads(text), sort_keys=True, separators=(",", ":")).encode() + b"\n")
    return digest.hexdigest()
