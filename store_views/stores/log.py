"""The interface between a store and the place where everything is kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from lightstream.schemas.records import (
    AttemptState,
    ResourcesRecord,
    RolloutEvent,
    RolloutState,
    WorkerHeartbeat,
)
from lightstream.schemas.types import LightningStoreStatistics, LogPositions, Span
from lightstream.stream_processors.core.lifecycle import Limits

from .queries import Query

NextVersion: TypeAlias = Callable[[ResourcesRecord | None], ResourcesRecord]
"""Makes the next version of resources of the last there is, or returns that one if nothing is to be written."""

NextWorker: TypeAlias = Callable[[WorkerHeartbeat | None], WorkerHeartbeat]
"""Makes a worker's record of the last there is."""


class Log(ABC):
    """Belongs to one event loop.

    Attributes:
        limits: what a rollout may ask for at most, and what a record holds.
    """

    limits: Limits

    async def start(self) -> None:  # noqa: B027  # a log in memory has nothing to do
        """Connect; called once, before anything else."""

    @abstractmethod
    async def close(self) -> None:
        """End waiting calls, as the store's interface says, and release everything."""

    # --- about the log

    def takes_otlp_traces(self) -> bool:
        """Whether :meth:`otlp_traces_endpoint` has an answer."""
        return False

    def otlp_traces_endpoint(self) -> str:
        """URL that takes OTLP traces for this log."""
        raise NotImplementedError

    @abstractmethod
    async def statistics(self) -> LightningStoreStatistics:
        """Counts of everything kept."""

    def positions(self) -> LogPositions:
        """As the store's."""
        return LogPositions()

    async def see(self, positions: LogPositions) -> None:  # noqa: B027  # a log in memory has nothing to do
        """As the store's."""

    # --- rollouts

    @abstractmethod
    async def submit(self, events: Sequence[RolloutEvent]) -> list[RolloutState]:
        """Write events; returns the states that carry their results, in the order of the events.

        Raises:
            ServiceUnavailableError: no result in time; what was written is durable and will take effect later.
            PublishError: one of them did not become durable.
            StoreError: no record can hold one of them; nothing was written.
        """

    @abstractmethod
    async def lease(self, count: int, worker_id: str | None, timeout_s: float, run_id: str) -> list[RolloutState]:
        """Begin attempts of up to ``count`` rollouts of the queue, for one caller alone; waits for the first only.

        The last attempt of each state returned is the one that was begun. A caller who is cancelled gets nothing:
        what was taken for him goes back into the queue.
        """

    @abstractmethod
    async def wait_ended(
        self,
        rollout_ids: Sequence[str],
        needed: int,
        timeout: float | None,  # noqa: ASYNC109  # part of the answer, not an error
    ) -> dict[str, RolloutState]:
        """Wait until ``needed`` of these rollouts have ended, or ``timeout`` seconds; return the ended ones by id.

        Rollouts that do not exist are not waited for: once all others have ended, that is enough.
        """

    @abstractmethod
    async def states_of(self, rollout_ids: Sequence[str]) -> dict[str, RolloutState]:
        """By id, the existing rollouts, as they stand."""

    async def attempts_of(self, rollout_ids: Sequence[str]) -> Mapping[str, Sequence[AttemptState]]:
        """By id, the attempts of the existing rollouts."""
        return {rollout_id: state.attempts for rollout_id, state in (await self.states_of(rollout_ids)).items()}

    @abstractmethod
    async def page_of_rollouts(self, query: Query) -> tuple[list[RolloutState], int]:
        """The rollouts of one page, in its order, and how many match in all."""

    # --- spans

    @abstractmethod
    def encoded_spans(self, spans: Sequence[Span]) -> Sequence[bytes]:
        """The spans as :meth:`append_spans` writes them; empty where they are kept as they are.

        Raises:
            StoreError: one is too large, or cannot be written down.
        """

    @abstractmethod
    async def append_spans(self, spans: Sequence[Span], encoded: Sequence[bytes]) -> list[Span]:
        """Make spans durable whose attempts exist; returns the new ones."""

    @abstractmethod
    async def page_of_spans(self, rollout_id: str, attempt_id: str | None, query: Query) -> tuple[list[Span], int]:
        """One page of a rollout's spans, or of one attempt's, in its order, and how many match in all.

        They are the caller's own. What counts as inserted is a span's first appearance.
        """

    # --- resources

    @abstractmethod
    async def put_resources(self, resources_id: str, make: NextVersion) -> ResourcesRecord:
        """Make the next version of these resources durable; it is the latest then.

        ``make`` may be called again, with another version: no two calls that write have made theirs of the same.
        """

    @abstractmethod
    async def find_resources(self, resources_id: str | None, timeout_s: float) -> ResourcesRecord | None:
        """Resources by id, or the latest; waits up to ``timeout_s`` for them."""

    @abstractmethod
    async def all_resources(self) -> list[ResourcesRecord]:
        """All resources, in the order they were first stored."""

    # --- workers

    @abstractmethod
    def worker(self, worker_id: str) -> WorkerHeartbeat | None:
        """One worker."""

    @abstractmethod
    def workers(self) -> list[WorkerHeartbeat]:
        """All workers, in the order they were first heard of."""

    @abstractmethod
    async def put_worker(self, worker_id: str, change: NextWorker, *, wait: bool = False) -> WorkerHeartbeat:
        """Change a worker; returns its record after that.

        Without ``wait`` it need not be durable yet: nothing is decided by it, and the event it follows from is.
        """

    @abstractmethod
    async def heartbeat(self, worker_id: str, change: NextWorker, events: Sequence[RolloutEvent]) -> None:
        """Change a worker and write events that have no result, durably."""

    def notes_idle(self, known: WorkerHeartbeat, now_unix_nano: int) -> bool:
        """Whether it is worth writing down that this worker asked for work in vain."""
        return True
