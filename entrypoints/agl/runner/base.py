"""The base class of custom Runners. (The ready-made Runner is ``lightstream.producers.Runner``.)"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, Self, TypeVar

from lightstream.producers import Hook, LitAgent, ParallelWorkerBase
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import NamedResources, Rollout, RolloutMode

from ..execution import ExecutionEvent

__all__ = ["Runner"]

TaskT = TypeVar("TaskT")


class Runner(ParallelWorkerBase, Generic[TaskT]):
    """Takes rollouts from a store and runs an agent on them. Override all but :meth:`run_context`.

    Set up by :meth:`init` in the main process and :meth:`init_worker` in each worker, taken down in the opposite order.
    """

    def init(self, agent: LitAgent[TaskT], **kwargs: Any) -> None:
        """Set the agent to run."""
        raise NotImplementedError(f"{type(self).__name__} must have an init method")

    def init_worker(self, worker_id: int, store: LightningStore, **kwargs: Any) -> None:
        """Set the store that rollouts come from."""
        raise NotImplementedError(f"{type(self).__name__} must have an init_worker method")

    def teardown_worker(self, worker_id: int, *args: Any, **kwargs: Any) -> None:
        """Forget the store."""
        raise NotImplementedError(f"{type(self).__name__} must have a teardown_worker method")

    def teardown(self, *args: Any, **kwargs: Any) -> None:
        """Forget the agent."""
        raise NotImplementedError(f"{type(self).__name__} must have a teardown method")

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Nothing: :meth:`iter` and :meth:`step` run.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(f"{type(self).__name__} runs by iter() or step()")

    async def iter(self, *, event: ExecutionEvent | None = None) -> None:
        """Work until ``event`` is set, or there is nothing left to do."""
        raise NotImplementedError(f"{type(self).__name__} must have an iter method")

    async def step(
        self,
        input: TaskT,  # noqa: A002  # the interface's name
        *,
        resources: NamedResources | None = None,
        mode: RolloutMode | None = None,
        event: ExecutionEvent | None = None,
    ) -> Rollout:
        """Run one task outside the queue."""
        raise NotImplementedError(f"{type(self).__name__} must have a step method")

    @contextmanager
    def run_context(
        self,
        *,
        agent: LitAgent[TaskT],
        store: LightningStore,
        hooks: Sequence[Hook] | None = None,
        worker_id: int | None = None,
    ) -> Generator[Self]:
        """The four calls around a block."""
        self.init(agent, hooks=hooks)
        try:
            self.init_worker(worker_id or 0, store)
            try:
                yield self
            finally:
                self.teardown_worker(worker_id or 0)
        finally:
            self.teardown()
