"""Tasks and rewards of reasoning-gym: one question, one answer, scored by the library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lightstream.producers import LitAgent
from lightstream.schemas.errors import SettingsError

from ..chat import single_answer
from ..environment import Environment
from ..sets import Task, TaskSet
from .library import library

DISTRIBUTION = "reasoning-gym"
VALIDATION_SEED = 1_000_003
"""Added to the seed: the library draws each task from seed and position."""


def reasoning_gym_environment(
    name: str,
    *,
    size: int = 1000,
    validation_size: int = 0,
    seed: int = 0,
    agent: LitAgent[Any] | Callable[..., Any] | None = None,
    system: str = "",
    **config: Any,
) -> Environment:
    """A data set of reasoning-gym. The answer is the text in ``<answer>`` tags, or all of it without them.

    Args:
        name: the library's name of the data set, such as ``chain_sum``.
        size, validation_size: how many tasks.
        seed: of the tasks.
        agent: returns the model's text; by default one call.
        system: the default agent's system message.
        config: the data set's own options, JSON values.

    Raises:
        SettingsError: the library or the data set is not there, or does not take the options.
    """
    gym = library(DISTRIBUTION)
    if name not in library(DISTRIBUTION, "reasoning_gym.factory").DATASETS:
        raise SettingsError(
            f"reasoning-gym has no data set {name!r}.",
            next_step="python -c 'from reasoning_gym.factory import DATASETS; print(*DATASETS)' names them.",
        )
    tasks: list[Task] = []
    for split, count, its_seed in (("train", size, seed), ("validation", validation_size, seed + VALIDATION_SEED)):
        if count == 0:
            continue
        try:
            entries = gym.create_dataset(name, size=count, seed=its_seed, **config)
        except (TypeError, AssertionError, ValueError) as error:
            raise SettingsError(f"reasoning-gym cannot make {name!r} of {config}: {error}.") from error
        for index in range(count):
            metadata = {"data_set": name, "size": count, "seed": its_seed, "index": index, "config": config}
            tasks.append(Task(f"{split}/{index}", entries[index]["question"], metadata, split))
    return Environment(
        TaskSet(f"reasoning-gym:{name}", tasks), agent or single_answer(system=system), score, library=DISTRIBUTION
    )


def score(task: Task, answer: Any) -> float:
    """The library's own score of a model's text."""
    noted = task.metadata
    items = tuple(sorted(noted["config"].items()))
    entries = _entries(noted["data_set"], noted["size"], noted["seed"], repr(items), lambda: dict(items))
    extracted = library(DISTRIBUTION, "reasoning_gym.utils").extract_answer(str(answer))
    return float(entries.score_answer(str(answer) if extracted is None else extracted, entries[noted["index"]]))


_made: dict[tuple[str, int, int, str], Any] = {}


def _entries(name: str, size: int, seed: int, key: str, config: Callable[[], dict[str, Any]]) -> Any:
    """The library's data set, made once in a process; it makes an entry when it is asked for."""
    place = (name, size, seed, key)
    if place not in _made:
        _made[place] = library(DISTRIBUTION).create_dataset(name, size=size, seed=seed, **config())
    return _made[place]
