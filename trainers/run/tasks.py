"""Tasks of a step, and names of their rollouts. Pure and repeatable: a restart asks for the same."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from lightstream.schemas.errors import TrainingError
from lightstream.schemas.types import Assembly, EnqueueRolloutRequest, RolloutConfig, RolloutMode

_PLACE = re.compile(r"s(?P<step>[1-9]\d*)(?:r\d+)?-g(?P<index>\d+)|x(?P<number>\d+)")


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T_co = TypeVar("T_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    T_co = TypeVar("T_co", covariant=True)


class Dataset(Protocol[T_co]):
    """Tasks by position: a list will do. Items must be JSON values."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> T_co: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksOfStep:
    """Which tasks a run asks for.

    Attributes:
        run_id, seed: of the run.
        step: 1, 2, …
        count: how many tasks.
        known_step: only the steps up to this one may decide: they are committed whenever the tasks are asked for, so
            the answer is the same after a restart. 0: none.
    """

    run_id: str
    seed: int | str
    step: int
    count: int
    known_step: int = 0


@runtime_checkable
class ChoosesTasks(Protocol):
    """A data set that says which of its tasks a step has; others are passed through in a random order."""

    def choose(self, wanted: TasksOfStep) -> list[int]:
        """Positions of the tasks of a step. Repeatable: the same wish has the same answer."""
        ...


@runtime_checkable
class DescribesTasks(Protocol):
    """A data set with a name, a digest and notes on its tasks, which the log keeps."""

    @property
    def identity(self) -> str:
        """Name and version: a run goes on with a data set of the same identity only."""
        ...

    def metadata_of(self, index: int) -> Mapping[str, Any]:
        """The metadata of the rollouts of a task."""
        ...


@dataclass(frozen=True, slots=True)
class TaskRequest:
    """A task as its rollouts have it.

    Attributes:
        input: JSON value.
        metadata: of the rollouts; ``None``: none.
    """

    input: Any
    metadata: dict[str, Any] | None = None


def task_of(dataset: Dataset, index: int) -> TaskRequest:
    """A task of a data set, with its metadata where the data set has some."""
    metadata = dict(dataset.metadata_of(index)) if isinstance(dataset, DescribesTasks) else None
    return TaskRequest(dataset[index], metadata)


def tasks_of_step(dataset: Dataset, wanted: TasksOfStep) -> list[int]:
    """Positions of the tasks of a step: the data set's own choice, else that of :func:`sample_indices`.

    Raises:
        TrainingError: the data set is empty, or chooses a task that it does not have.
    """
    if not isinstance(dataset, ChoosesTasks):
        return sample_indices(wanted.step, wanted.count, len(dataset), wanted.seed)
    chosen = dataset.choose(wanted)
    if len(chosen) != wanted.count or not all(0 <= index < len(dataset) for index in chosen):
        raise TrainingError(
            f"the data set chose {chosen!r:.200} for step {wanted.step}; {wanted.count} positions below "
            f"{len(dataset)} are needed.",
            next_step=f"Correct {type(dataset).__name__}.choose.",
        )
    return chosen


def sample_indices(step: int, count: int, dataset_size: int, seed: int | str) -> list[int]:
    """Positions in the data set of the tasks of a step (1, 2, …).

    The data set is passed through again and again, in a new order each time. A step may span two passes.

    Raises:
        TrainingError: the data set is empty.
    """
    if dataset_size < 1:
        raise TrainingError("the data set has no tasks.", next_step="Pass at least one task to Trainer.fit.")
    first = (step - 1) * count
    orders: dict[int, list[int]] = {}
    indices: list[int] = []
    for position in range(first, first + count):
        epoch, place = divmod(position, dataset_size)
        if epoch not in orders:
            order = list(range(dataset_size))
            random.Random(f"{seed}-{epoch}").shuffle(order)  # noqa: S311  # an order, not a secret
            orders[epoch] = order
        indices.append(orders[epoch][place])
    return indices


def step_group_id(run_id: str, step: int, index: int, discarded: int = 0) -> str:
    """The group of the ``index``-th task of a step, after ``discarded`` tries that came to nothing."""
    again = f"r{discarded}" if discarded else ""
    return f"{run_id}-s{step}{again}-g{index}"


def validation_group_id(run_id: str, step: int, index: int) -> str:
    """The group of the ``index``-th validation task after a step."""
    return f"{run_id}-v{step}-g{index}"


def further_group_id(run_id: str, number: int) -> str:
    """The group of the ``number``-th further task, beside the steps' tasks."""
    return f"{run_id}-x{number}"


def place_of_group(run_id: str, group_id: str) -> tuple[int, int] | None:
    """Return the step and the place in it of a group of :func:`step_group_id`; 0 and the number of one of
    :func:`further_group_id`; ``None`` for others."""
    if not group_id.startswith(f"{run_id}-"):
        return None
    found = _PLACE.fullmatch(group_id, len(run_id) + 1)
    if found is None:
        return None
    return (0, int(found["number"])) if found["step"] is None else (int(found["step"]), int(found["index"]))


def further_index(number: int, dataset: Dataset, run_id: str, seed: int) -> int:
    """Position in the data set of that task: passes of their own, in orders of their own."""
    return tasks_of_step(dataset, TasksOfStep(run_id=run_id, seed=f"further-{seed}", step=number + 1, count=1))[0]


def step_requests(
    group_id: str,
    task: TaskRequest,
    *,
    count: int,
    run_id: str,
    mode: RolloutMode,
    resources_id: str | None,
    config: RolloutConfig,
    assembly: Assembly | None,
    baseline: bool = False,
) -> list[EnqueueRolloutRequest]:
    """The ``count`` rollouts of one task. Their ids follow from the group's, so a retry asks for the same rollouts.

    With a ``baseline`` there is one more, the last, of mode ``test``.
    """
    return [
        EnqueueRolloutRequest(
            input=task.input,
            metadata=task.metadata,
            mode="test" if sample == count else mode,
            resources_id=resources_id,
            config=config,
            rollout_id=f"{group_id}-{sample}",
            group_id=group_id,
            group_size=count + baseline,
            run_id=run_id,
            assembly=assembly,
        )
        for sample in range(count + baseline)
    ]
