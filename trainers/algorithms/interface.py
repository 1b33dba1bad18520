"""An algorithm: a class with ``run``, or any function of a context."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import ClassVar, TypeAlias

from lightstream.runtime.settings import Settings

from .context import AlgorithmContext

AlgorithmFunction: TypeAlias = Callable[[AlgorithmContext], None]


class Algorithm(ABC):
    """Learns from trajectories: asks for rollouts, takes complete groups, commits steps.

    Attributes:
        needs_tasks: whether it cannot do without a data set of tasks.
        awaited_rewards: names of rewards that a rollout needs before it counts as here.
    """

    needs_tasks: ClassVar[bool] = True
    awaited_rewards: Collection[str] = ()

    def check(self, settings: Settings) -> None:
        """Look, before anything starts, whether all that training needs is there.

        Raises:
            LightstreamError: it is not; nothing has changed.
        """
        _ = settings

    def of_tasks(self, tasks: int) -> Algorithm:
        """The algorithm for this number of tasks.

        Raises:
            LightstreamError: they are too few.
        """
        _ = tasks
        return self

    def made_with(self) -> dict[str, str]:
        """Name and value of everything that a run that goes on must share with its beginning."""
        return {"algorithm": type(self).__name__}

    def trained_policies(self) -> frozenset[str]:
        """Names of the policies that nobody else may train at the same time: servers know them by these alone."""
        return frozenset()

    @abstractmethod
    def run(self, context: AlgorithmContext) -> None:
        """Train from ``context.last_step`` on until done. A restart calls it again, with the history it had.

        Everything that must survive a crash goes through ``context.commit``; what is only in memory must follow
        from the history.
        """


class FunctionAlgorithm(Algorithm):
    """A function as an algorithm."""

    def __init__(self, function: AlgorithmFunction) -> None:
        self._function = function

    def made_with(self) -> dict[str, str]:
        return {"algorithm": getattr(self._function, "__qualname__", type(self._function).__name__)}

    def run(self, context: AlgorithmContext) -> None:
        self._function(context)


def algo(function: AlgorithmFunction) -> FunctionAlgorithm:
    """Make an algorithm from a function.

    Example:
        ::

            @algo
            def best_prompt(context: AlgorithmContext) -> None:
                for step in range(context.last_step + 1, 11):
                    started = context.now()
                    ids = context.enqueue_step(step, tasks=4, rollouts_per_task=2)
                    groups = context.collect(ids)
                    context.commit(step, groups, started_unix_nano=started, metrics={...})
    """
    return FunctionAlgorithm(function)


def as_algorithm(algorithm: Algorithm | AlgorithmFunction) -> Algorithm:
    """The algorithm itself, or one made from a function."""
    return algorithm if isinstance(algorithm, Algorithm) else FunctionAlgorithm(algorithm)
