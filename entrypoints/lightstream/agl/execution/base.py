"""What an execution strategy is."""

from __future__ import annotations

from typing import Protocol

from lightstream.schemas.interfaces import LightningStore

from .events import ExecutionEvent

__all__ = ["AlgorithmBundle", "ExecutionStrategy", "RunnerBundle"]


class AlgorithmBundle(Protocol):
    """The algorithm, ready to run on a store."""

    async def __call__(self, store: LightningStore, event: ExecutionEvent) -> None:
        """Run to the end, or until ``event`` is set."""
        ...


class RunnerBundle(Protocol):
    """A Runner with its agent, ready to run on a store."""

    async def __call__(self, store: LightningStore, worker_id: int, event: ExecutionEvent) -> None:
        """Run until ``event`` is set, or the Runner is done."""
        ...


class ExecutionStrategy:
    """Starts an algorithm and its Runners, somewhere, and ends them in order. Override :meth:`execute`."""

    def execute(self, algorithm: AlgorithmBundle, runner: RunnerBundle, store: LightningStore) -> None:
        """Run both on ``store``; returns when they are over.

        Raises:
            Exception: what the algorithm or a Runner raised; the others were stopped.
        """
        raise NotImplementedError(f"{type(self).__name__} must have an execute method")
