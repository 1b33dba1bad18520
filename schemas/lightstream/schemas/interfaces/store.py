"""The store's contract: what Runners, trainers and users ask of the control plane.

Names and meaning are Agent Lightning's ``LightningStore``. Every write returns after it is durable and judged by the
life cycle, or raises and has changed nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..records import ResourcesRecord, RolloutConfig, RolloutState, WorkerHeartbeat
from ..types import AttemptedRollout, Rollout, RolloutModeName

__all__ = ["EnqueueRolloutRequest", "LightningStore"]


@dataclass(frozen=True, slots=True)
class EnqueueRolloutRequest:
    """One rollout to enqueue.

    ``rollout_id`` makes the request repeatable: the same id is the same rollout. ``group_size`` requests with one
    ``group_id`` are the samples of one task.
    """

    input: Any
    mode: RolloutModeName = "train"
    resources_id: str | None = None
    config: RolloutConfig = field(default_factory=RolloutConfig)
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    rollout_id: str | None = None
    group_id: str | None = None
    group_size: int = 1
    run_id: str = ""


class LightningStore(ABC):
    """The control plane. Implementations are safe for use from several threads and tasks."""

    @abstractmethod
    async def enqueue_many_rollouts(self, requests: Sequence[EnqueueRolloutRequest]) -> list[Rollout]:
        """Put rollouts in the queue. A request whose id exists already returns that rollout, unchanged."""

    async def enqueue_rollout(self, request: EnqueueRolloutRequest) -> Rollout:
        """As :meth:`enqueue_many_rollouts`, for one."""
        return (await self.enqueue_many_rollouts([request]))[0]

    @abstractmethod
    async def dequeue_rollout(self, worker_id: str, *, timeout_s: float = 0.0) -> AttemptedRollout | None:
        """Take the next rollout and start an attempt of it.

        Returns ``None`` when nothing came within ``timeout_s`` seconds. When it returns an attempt, the life cycle has
        accepted the start: no other worker has it, and its opening record precedes every span it will make.
        """

    @abstractmethod
    async def end_attempt(
        self,
        rollout_id: str,
        attempt_id: str,
        *,
        succeeded: bool,
        error_type: str | None = None,
        error_message: str | None = None,
    ) -> RolloutState:
        """Report that an attempt is over. All its spans must be durable before.

        Returns the state after the report, which may say that the report came too late and was ignored.
        """

    @abstractmethod
    async def heartbeat(self, worker: WorkerHeartbeat, attempts: Sequence[tuple[str, str]]) -> None:
        """Say that a worker is alive, and so are its attempts, each (rollout_id, attempt_id)."""

    @abstractmethod
    async def cancel_rollout(self, rollout_id: str, reason: str = "") -> RolloutState:
        """Cancel a rollout that is not terminal.

        Raises:
            NotFoundError: there is no such rollout.
        """

    @abstractmethod
    async def wait_for_rollouts(self, rollout_ids: Sequence[str], timeout_s: float | None = None) -> list[RolloutState]:
        """Wait until all are terminal; returns those that are when the time is over, in the order asked for."""

    @abstractmethod
    async def add_resources(self, record: ResourcesRecord) -> ResourcesRecord:
        """Publish a version of the resources."""

    @abstractmethod
    async def get_resources(self, resources_id: str | None = None, *, timeout_s: float = 10.0) -> ResourcesRecord:
        """Resources by id, or the latest when ``resources_id`` is ``None``.

        Waits up to ``timeout_s`` seconds for them to appear.

        Raises:
            NotFoundError: they did not.
        """

    @abstractmethod
    async def close(self) -> None:
        """Release connections. Nothing in flight is lost: every write had returned durable."""
