"""A store whose rollouts are done as soon as they are asked for: their trajectories go straight to Kafka."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from lightstream.runtime.kafka import KafkaPublisher, run_headers
from lightstream.runtime.settings import Settings
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.records import RolloutMode, Trajectory
from lightstream.schemas.topics import TRAJECTORIES
from lightstream.schemas.types import EnqueueRolloutRequest, Rollout

from .trajectories import random_trajectory


class InstantStore(LightningStore):
    """Each enqueued rollout yields one final trajectory, again when asked again, as in at-least-once delivery.

    Args:
        deaf: rollouts of which nothing is ever heard.
        make: makes a trajectory, with the arguments of :func:`random_trajectory`.
    """

    def __init__(
        self, settings: Settings, deaf: Collection[str] = (), *, make: Callable[..., Trajectory] = random_trajectory
    ) -> None:
        self.settings = settings
        self._make = make
        self._publisher = KafkaPublisher(settings, linger_ms=1)
        self.asked: list[str] = []
        self.deaf = frozenset(deaf)

    def trajectory(self, request: EnqueueRolloutRequest) -> Trajectory:
        assert request.rollout_id is not None
        assert request.group_id is not None
        version = int((request.resources_id or "-v0").rpartition("-v")[2])
        made = self._make(
            request.rollout_id,
            group_id=request.group_id,
            group_size=request.group_size or 1,
            run_id=request.run_id or "",
            policy_version=version,
        )
        return made.model_copy(update={"mode": RolloutMode(request.mode or "train")})

    def publish(self, request: EnqueueRolloutRequest) -> None:
        trajectory = self.trajectory(request)
        headers = run_headers(trajectory.run_id)
        self._publisher.publish(TRAJECTORIES, trajectory.group_id or "", trajectory, headers=headers)

    async def enqueue_many_rollouts(self, rollouts: Sequence[EnqueueRolloutRequest]) -> list[Rollout]:
        for request in rollouts:
            self.asked.append(request.rollout_id or "")
            if request.rollout_id not in self.deaf:
                self.publish(request)
        assert self._publisher.flush(300) == 0
        return [Rollout(rollout_id=r.rollout_id or "", input=r.input, start_time=0.0) for r in rollouts]

    async def close(self) -> None:
        self._publisher.close()
