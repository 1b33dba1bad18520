"""Clients of the first protocol: one of a server, and one with tasks of its own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from lightstream.schemas.errors import NotFoundError
from lightstream.schemas.types import NamedResources, ResourcesUpdate, RolloutLegacy, Task
from lightstream.store_views.stores.http import AgentLightningClient

__all__ = ["AgentLightningClient", "DevTaskLoader"]


class DevTaskLoader(AgentLightningClient):
    """Dispatches its own tasks, over and over, and keeps what is reported: for trying out an agent without a server.

    Args:
        tasks: inputs, or :class:`Task` objects.
        resources: what every task runs with.
        kwargs: of :class:`AgentLightningClient`; no server is asked.

    Raises:
        ValueError: there are no tasks, or some are :class:`Task` objects and some are not.
    """

    def __init__(self, tasks: Sequence[Any], resources: NamedResources | ResourcesUpdate, **kwargs: Any) -> None:
        super().__init__("http://localhost", **kwargs)
        made = {isinstance(task, Task) for task in tasks}
        if len(made) != 1:
            raise ValueError("tasks must be all inputs, or all Task objects" if made else "there are no tasks")
        if not isinstance(resources, ResourcesUpdate):
            now = time.time()
            resources = ResourcesUpdate(
                resources_id="local", resources=resources, create_time=now, update_time=now, version=1
            )
        self._tasks = list(tasks)
        self._update = resources
        self._rollouts: list[RolloutLegacy] = []

    @property
    def rollouts(self) -> list[RolloutLegacy]:
        """The reports, in order."""
        return self._rollouts

    async def poll_next_task_async(self) -> Task | None:
        """The next task; after the last comes the first again."""
        number = self.task_count % len(self._tasks)
        self.task_count += 1
        found = self._tasks[number]
        if isinstance(found, Task):
            return found
        return Task(
            rollout_id=f"local_task_{number + 1:03d}",
            input=found,
            resources_id=self._update.resources_id,
            create_time=time.time(),
        )

    async def get_resources_by_id_async(self, resource_id: str) -> ResourcesUpdate | None:
        """The resources.

        Raises:
            NotFoundError: only others exist.
        """
        if resource_id != self._update.resources_id:
            raise NotFoundError(f"Resources {resource_id} not found; there is only {self._update.resources_id}")
        return self._update

    async def get_latest_resources_async(self) -> ResourcesUpdate | None:
        """The resources."""
        return self._update

    async def post_rollout_async(self, rollout: RolloutLegacy) -> dict[str, Any] | None:
        """Keep a report."""
        self._rollouts.append(rollout)
        return {"status": "received", "rollout_id": rollout.rollout_id}
