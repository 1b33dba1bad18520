"""Tasks of a step, and names of their rollouts. Pure and repeatable: a restart asks for the same."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Any, Protocol

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


def further_index(number: int, dataset_size: int, seed: int) -> int:
    """Position in the data set of that task: passes of their own, in orders of their own."""
    return sample_indices(number + 1, 1, dataset_size, f"further-{seed}")[0]


def step_requests(
    group_id: str,
    task: Any,
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
            input=task,
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
