"""An algorithm from a function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from lightstream.trainers.tasks import Dataset

from .base import Algorithm

__all__ = ["FunctionalAlgorithm", "algo"]

GIVEN = ("store", "train_dataset", "val_dataset", "llm_proxy", "adapter", "initial_resources")
"""What a function may ask for by name."""


class FunctionalAlgorithm(Algorithm):
    """What :func:`algo` makes of a function. Calling it calls the function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._wanted = frozenset(inspect.signature(function).parameters)

    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self._function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def run(self, train_dataset: Dataset | None = None, val_dataset: Dataset | None = None) -> Any:
        """Call the function with what it asks for.

        Raises:
            TypeError: a data set was given that the function does not take.
        """
        datasets = {"train_dataset": train_dataset, "val_dataset": val_dataset}
        for name, dataset in datasets.items():
            if dataset is not None and name not in self._wanted:
                raise TypeError(f"{name} was given, but {self._function!r} does not take it")
        made: dict[str, Callable[[], Any]] = {
            "store": self.get_store,
            "adapter": self.get_adapter,
            "llm_proxy": self.get_llm_proxy,
            "initial_resources": self.get_initial_resources,
        }
        given = {name: make() for name, make in made.items() if name in self._wanted}
        return self._function(**given, **{name: value for name, value in datasets.items() if name in self._wanted})


def algo(function: Callable[..., Any]) -> Any:
    """Make an algorithm from a function, synchronous or not.

    One that takes any of ``store``, ``train_dataset``, ``val_dataset``, ``llm_proxy``, ``adapter`` and
    ``initial_resources`` works on a store; one that takes only a context trains (``lightstream.trainers.algo``).

    Raises:
        TypeError: it is neither.
    """
    parameters = inspect.signature(function).parameters
    if set(parameters) <= set(GIVEN):
        return FunctionalAlgorithm(function)
    if len(parameters) == 1:
        from lightstream.trainers import algo as training_algorithm

        return training_algorithm(function)
    unknown = ", ".join(name for name in parameters if name not in GIVEN)
    raise TypeError(f"nothing provides {unknown}; an algorithm takes any of {', '.join(GIVEN)}, or only a context")
