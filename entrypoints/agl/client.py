"""Clients of the first protocol: one of a server, for agents that poll, and one with tasks of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from lightstream.runtime.http.own_tokens import token_of
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import NotFoundError, ServiceUnavailableError, StoreError
from lightstream.schemas.types import NamedResources, ResourcesUpdate
from lightstream.store_views.stores.http import WAIT_S_MAX, Connection, path_segment

from .first_protocol.messages import RolloutLegacy, Task, TaskIfAny

__all__ = ["AgentLightningClient", "DevTaskLoader"]


class AgentLightningClient:
    """Polls a store server (or an old server) for tasks, and reports their results.

    As in Agent Lightning, what cannot be had is ``None``: resources that do not exist, and answers of a server that
    stayed away for ``timeout`` seconds. Any number of threads and event loops may use one client.

    Args:
        endpoint: URL of the server, without a path.
        poll_interval: seconds between two questions for a task; a store server makes them one long wait.
        timeout: seconds that a server may be away.
        token: by default that of the settings (``store_token``).
        worker_id: who asks, for the store's list of workers.

    Attributes:
        task_count: how many tasks were received.

    Raises (methods):
        SettingsError: the token is missing or wrong.
        StoreError: a report is refused; nothing changed.
    """

    def __init__(
        self,
        endpoint: str,
        poll_interval: float = 5.0,
        timeout: float = 10.0,
        *,
        token: str | None = None,
        worker_id: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        settings = settings or Settings.load()
        token = token_of(settings, "store_token") if token is None else token
        self.endpoint = endpoint
        self.poll_interval = poll_interval
        self.timeout = timeout
        self.task_count = 0
        self._worker_id = worker_id
        self._connection = Connection(endpoint, settings, token, timeout, prefix="")

    async def poll_next_task_async(self) -> Task | None:
        """Wait for a task, for as long as it takes."""
        query: dict[str, Any] = {"timeout_s": max(0.0, min(self.poll_interval, WAIT_S_MAX))}
        if self._worker_id is not None:
            query["worker_id"] = self._worker_id
        while True:
            began = time.monotonic()
            try:
                found = TaskIfAny.model_validate((await self._connection.get("/task", query, dispatches=True)).value)
            except ServiceUnavailableError:
                found = TaskIfAny(is_available=False)
            if found.task is not None:
                self.task_count += 1
                return found.task
            await asyncio.sleep(max(0.0, began + self.poll_interval - time.monotonic()))

    async def get_resources_by_id_async(self, resource_id: str) -> ResourcesUpdate | None:
        """Resources by id."""
        return await self._resources(path_segment("resource_id", resource_id))

    async def get_latest_resources_async(self) -> ResourcesUpdate | None:
        """Return the last published resources."""
        return await self._resources("latest")

    async def post_rollout_async(self, rollout: RolloutLegacy) -> dict[str, Any] | None:
        """Report a task that was run; returns the server's answer (``status``, ``message``)."""
        try:
            answer: dict[str, Any] = (await self._connection.post("/rollout", dict(rollout))).value
        except ServiceUnavailableError:
            return None
        return answer

    def poll_next_task(self) -> Task | None:
        """As :meth:`poll_next_task_async`; blocks."""
        return self._connection.run(self.poll_next_task_async)

    def get_resources_by_id(self, resource_id: str) -> ResourcesUpdate | None:
        """As :meth:`get_resources_by_id_async`; blocks."""
        return self._connection.run(lambda: self.get_resources_by_id_async(resource_id))

    def get_latest_resources(self) -> ResourcesUpdate | None:
        """As :meth:`get_latest_resources_async`; blocks."""
        return self._connection.run(self.get_latest_resources_async)

    def post_rollout(self, rollout: RolloutLegacy) -> dict[str, Any] | None:
        """As :meth:`post_rollout_async`; blocks."""
        return self._connection.run(lambda: self.post_rollout_async(rollout))

    def close(self) -> None:
        """Close connections; calls under way are cancelled."""
        self._connection.close_and_wait()

    async def _resources(self, segment: str) -> ResourcesUpdate | None:
        try:
            return ResourcesUpdate.model_validate((await self._connection.get(f"/resources/{segment}")).value)
        except (StoreError, ServiceUnavailableError):  # an old server's 404 is of no kind
            return None


class DevTaskLoader(AgentLightningClient):
    """Dispatches its own tasks, over and over, and keeps reports: for trying out an agent without a server.

    Args:
        tasks: inputs, or :class:`Task` objects.
        resources: what every task runs with.
        kwargs: of :class:`AgentLightningClient`; no server is asked.

    Raises:
        ValueError: there are no tasks, or some are :class:`Task` objects and some are not.
    """

    def __init__(self, tasks: Sequence[Any], resources: NamedResources | ResourcesUpdate, **kwargs: Any) -> None:
        super().__init__("http://localhost", **kwargs)
        kinds = {isinstance(task, Task) for task in tasks}
        if len(kinds) != 1:
            raise ValueError("tasks must be all inputs, or all Task objects" if kinds else "there are no tasks")
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
