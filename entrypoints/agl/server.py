"""The algorithm's side of the first protocol: queue tasks, publish resources, collect reports."""

from __future__ import annotations

from typing import Any

from lightstream.runtime.settings import Settings
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import (
    FINISHED,
    AttemptedRollout,
    NamedResources,
    Rollout,
    RolloutConfig,
    RolloutMode,
)
from lightstream.store_views.stores.http import LightningStoreServer
from lightstream.store_views.stores.memory import InMemoryLightningStore

from .first_protocol.messages import RolloutLegacy, Task
from .first_protocol.report import final_reward_in, report_in

__all__ = ["AgentLightningServer"]

CLAIMS_MAX = 10
"""A task is dispatched so often when nothing is heard of it. Agent Lightning's server never gave up."""


class AgentLightningServer:
    """A store server with the methods of Agent Lightning's first server.

    Args:
        host, port: where to listen; port 0 is any free one.
        task_timeout_seconds: a task that nothing was heard of for so long after it was dispatched is dispatched again.
            What its first agent reports until then still counts.
        store: where everything is kept; stays the caller's. By default one in memory, of this server's own.
        settings: also name the token asked for; by default those of the environment.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 8000,
        task_timeout_seconds: float = 300.0,
        *,
        store: LightningStore | None = None,
        settings: Settings | None = None,
    ) -> None:
        self._is_own = store is None
        self.store: LightningStore = InMemoryLightningStore() if store is None else store
        self._server = LightningStoreServer(self.store, host, port, settings=settings)
        self._config = RolloutConfig(
            unresponsive_seconds=task_timeout_seconds,
            timeout_seconds=2 * task_timeout_seconds,  # silence comes first, and may be broken
            max_attempts=CLAIMS_MAX,
            retry_condition=["unresponsive", "timeout"],
        )
        self._uncollected: dict[str, None] = {}

    @property
    def endpoint(self) -> str:
        """URL of the server, without a path."""
        return self._server.endpoint

    async def start(self) -> None:
        """Serve; returns once requests are taken."""
        await self._server.start()

    async def run_forever(self) -> None:
        """Serve until :meth:`stop`, which any loop and thread may call."""
        await self._server.run_forever()

    async def stop(self) -> None:
        """Stop serving; a store of this server's own is gone then."""
        await self._server.stop()
        if self._is_own:
            await self.store.close()

    async def queue_task(
        self,
        sample: Any,
        mode: RolloutMode | None = None,
        resources_id: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> str:
        """Put a task in the queue; returns the rollout's id."""
        rollout = await self.store.enqueue_rollout(sample, mode, resources_id, self._config, metadata)
        self._uncollected[rollout.rollout_id] = None
        return rollout.rollout_id

    async def update_resources(self, resources: NamedResources) -> str:
        """Publish resources; they are the latest then. Returns their id."""
        return (await self.store.add_resources(resources)).resources_id

    async def get_completed_rollout(self, rollout_id: str) -> RolloutLegacy | None:
        """Return the result of a rollout, or ``None`` while it is not over."""
        found = await _completed(self.store, rollout_id)
        if found is not None:
            self._uncollected.pop(rollout_id, None)
        return found

    async def poll_completed_rollout(self, rollout_id: str, timeout: float | None = None) -> RolloutLegacy | None:  # noqa: ASYNC109  # the interface's name
        """As :meth:`get_completed_rollout`, waiting up to ``timeout`` seconds; ``None`` waits forever."""
        await self.store.wait_for_rollouts(rollout_ids=[rollout_id], timeout=timeout)
        return await self.get_completed_rollout(rollout_id)

    async def retrieve_completed_rollouts(self) -> list[RolloutLegacy]:
        """The ended rollouts that were queued here and were not dispatched by this server before."""
        over = await self.store.wait_for_rollouts(rollout_ids=list(self._uncollected), timeout=0.0)
        found = [await self.get_completed_rollout(rollout.rollout_id) for rollout in over]
        return [rollout for rollout in found if rollout is not None]


async def _completed(store: LightningStore, rollout_id: str) -> RolloutLegacy | None:
    """Return what its agent reported, or ``None`` while it is not over.

    Of one that ended otherwise (another kind of Runner, a failure, a cancel) there is the task, the reward if one was
    emitted, and in the metadata ``status`` and the attempt's ``error_type`` and ``error_message``.
    """
    rollout = await store.get_rollout_by_id(rollout_id)
    if rollout is None or rollout.status not in FINISHED:
        return None
    spans = await store.query_spans(rollout_id, "latest")
    if rollout.status == "succeeded" and (report := report_in(spans)) is not None:
        return report
    return RolloutLegacy(
        rollout_id=rollout_id,
        task=_task(rollout),
        final_reward=final_reward_in(spans),
        metadata=_fate(rollout),
    )


def _task(rollout: Rollout) -> Task:
    return Task(
        rollout_id=rollout.rollout_id,
        input=rollout.input,
        mode=rollout.mode,
        resources_id=rollout.resources_id,
        create_time=rollout.start_time,
        metadata=rollout.metadata or {},
    )


def _fate(rollout: Rollout) -> dict[str, str | None]:
    fate: dict[str, str | None] = {"status": rollout.status}
    if isinstance(rollout, AttemptedRollout):
        fate |= {"error_type": rollout.attempt.error_type, "error_message": rollout.attempt.error_message}
    return fate
