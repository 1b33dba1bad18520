"""A store whose rollouts are done as soon as they are asked for: their trajectories go straight to Kafka."""

from __future__ import annotations

from collections.abc import Sequence

from lightstream.schemas.errors import NotFoundError
from lightstream.schemas.interfaces import EnqueueRolloutRequest, LightningStore
from lightstream.schemas.kafka import KafkaPublisher
from lightstream.schemas.records import ResourcesRecord, RolloutState, Trajectory, WorkerHeartbeat
from lightstream.schemas.settings import Settings
from lightstream.schemas.topics import TRAJECTORIES
from lightstream.schemas.types import AttemptedRollout, Rollout

from .trajectories import random_trajectory

__all__ = ["InstantStore"]


class InstantStore(LightningStore):
    """Each enqueued rollout yields one final trajectory, again when asked again, as in at-least-once delivery."""

    def __init__(self, settings: Settings) -> None:
        self._publisher = KafkaPublisher(settings, linger_ms=1)
        self.asked: list[str] = []

    def trajectory(self, request: EnqueueRolloutRequest) -> Trajectory:
        assert request.rollout_id is not None
        assert request.group_id is not None
        version = int((request.resources_id or "-v0").rpartition("-v")[2])
        return random_trajectory(
            request.rollout_id,
            group_id=request.group_id,
            group_size=request.group_size,
            run_id=request.run_id,
            policy_version=version,
        )

    async def enqueue_many_rollouts(self, requests: Sequence[EnqueueRolloutRequest]) -> list[Rollout]:
        for request in requests:
            trajectory = self.trajectory(request)
            self.asked.append(trajectory.rollout_id)
            self._publisher.publish(TRAJECTORIES, trajectory.group_id or "", trajectory)
        assert self._publisher.flush(30) == 0
        return [Rollout(rollout_id=r.rollout_id or "", input=r.input, start_time=0.0) for r in requests]

    async def dequeue_rollout(self, worker_id: str, *, timeout_s: float = 0.0) -> AttemptedRollout | None:
        return None

    async def end_attempt(
        self,
        rollout_id: str,
        attempt_id: str,
        *,
        succeeded: bool,
        error_type: str | None = None,
        error_message: str | None = None,
    ) -> RolloutState:
        raise NotFoundError(rollout_id)

    async def heartbeat(self, worker: WorkerHeartbeat, attempts: Sequence[tuple[str, str]]) -> None:
        return

    async def cancel_rollout(self, rollout_id: str, reason: str = "") -> RolloutState:
        raise NotFoundError(rollout_id)

    async def wait_for_rollouts(self, rollout_ids: Sequence[str], timeout_s: float | None = None) -> list[RolloutState]:
        return []

    async def add_resources(self, record: ResourcesRecord) -> ResourcesRecord:
        return record

    async def get_resources(self, resources_id: str | None = None, *, timeout_s: float = 10.0) -> ResourcesRecord:
        raise NotFoundError(resources_id or "resources")

    async def close(self) -> None:
        self._publisher.close()
