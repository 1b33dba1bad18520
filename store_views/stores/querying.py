"""The interface's query methods, whose arguments become one query object."""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal, Unpack

from lightstream.schemas.interfaces import (
    AttemptFilters,
    LightningStore,
    ResourcesFilters,
    RolloutFilters,
    SpanFilters,
    WorkerFilters,
    takes,
)
from lightstream.schemas.types import (
    Attempt,
    PaginatedResult,
    ResourcesUpdate,
    Rollout,
    Span,
    Worker,
)

from .queries import AttemptQuery, ResourcesQuery, RolloutQuery, SpanQuery, WorkerQuery
from .validation import check_text


class QueriedStore(LightningStore):
    """A store that is asked by query objects. Arguments are checked here: a wrong one is a :class:`StoreError`."""

    @abstractmethod
    async def find_rollouts(self, query: RolloutQuery) -> PaginatedResult[Rollout]:
        """Return the page that the query asks for."""

    @abstractmethod
    async def find_attempts(self, rollout_id: str, query: AttemptQuery) -> PaginatedResult[Attempt]:
        """Return the page of the rollout's attempts."""

    @abstractmethod
    async def find_spans(self, rollout_id: str, attempt_id: str | None, query: SpanQuery) -> PaginatedResult[Span]:
        """Return the page of the rollout's spans; of the spans of an attempt, or of the ``latest`` one, if it is
        named."""

    @abstractmethod
    async def find_resources(self, query: ResourcesQuery) -> PaginatedResult[ResourcesUpdate]:
        """Return the page that the query asks for."""

    @abstractmethod
    async def find_workers(self, query: WorkerQuery) -> PaginatedResult[Worker]:
        """Return the page that the query asks for."""

    @takes(RolloutFilters)
    async def query_rollouts(self, **query: Unpack[RolloutFilters]) -> PaginatedResult[Rollout]:
        return await self.find_rollouts(RolloutQuery.checked(**query))

    @takes(AttemptFilters)
    async def query_attempts(self, rollout_id: str, **query: Unpack[AttemptFilters]) -> PaginatedResult[Attempt]:
        check_text("rollout_id", rollout_id)
        return await self.find_attempts(rollout_id, AttemptQuery.checked(**query))

    @takes(SpanFilters)
    async def query_spans(
        self, rollout_id: str, attempt_id: str | Literal["latest"] | None = None, **query: Unpack[SpanFilters]
    ) -> PaginatedResult[Span]:
        check_text("rollout_id", rollout_id)
        if attempt_id is not None:
            check_text("attempt_id", attempt_id)
        return await self.find_spans(rollout_id, attempt_id, SpanQuery.checked(**query))

    @takes(ResourcesFilters)
    async def query_resources(self, **query: Unpack[ResourcesFilters]) -> PaginatedResult[ResourcesUpdate]:
        return await self.find_resources(ResourcesQuery.checked(**query))

    @takes(WorkerFilters)
    async def query_workers(self, **query: Unpack[WorkerFilters]) -> PaginatedResult[Worker]:
        return await self.find_workers(WorkerQuery.checked(**query))
