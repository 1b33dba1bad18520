"""The interface's query methods, whose arguments become one query object."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Literal

from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import (
    Attempt,
    PaginatedResult,
    ResourcesUpdate,
    Rollout,
    RolloutStatus,
    Span,
    Worker,
    WorkerStatus,
)

from .queries import AttemptQuery, ResourcesQuery, RolloutQuery, SpanQuery, WorkerQuery
from .validation import check_text

__all__ = ["QueriedStore"]


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
        """Return the page of the rollout's spans; of those of an attempt, or of the ``latest`` one, if it is named."""

    @abstractmethod
    async def find_resources(self, query: ResourcesQuery) -> PaginatedResult[ResourcesUpdate]:
        """Return the page that the query asks for."""

    @abstractmethod
    async def find_workers(self, query: WorkerQuery) -> PaginatedResult[Worker]:
        """Return the page that the query asks for."""

    async def query_rollouts(
        self,
        *,
        status_in: Sequence[RolloutStatus] | None = None,
        rollout_id_in: Sequence[str] | None = None,
        rollout_id_contains: str | None = None,
        filter_logic: Literal["and", "or"] = "and",
        sort_by: str | None = None,
        sort_order: Literal["asc", "desc"] = "asc",
        limit: int = -1,
        offset: int = 0,
        status: Sequence[RolloutStatus] | None = None,
        rollout_ids: Sequence[str] | None = None,
        rollout_id_prefix: str | None = None,
        started_after: float | None = None,
        started_before: float | None = None,
    ) -> PaginatedResult[Rollout]:
        query = RolloutQuery.checked(
            status_in=status if status_in is None else status_in,
            rollout_id_in=rollout_ids if rollout_id_in is None else rollout_id_in,
            rollout_id_contains=rollout_id_contains,
            rollout_id_prefix=rollout_id_prefix,
            started_after=started_after,
            started_before=started_before,
            filter_logic=filter_logic,
            sort_by=sort_by,
            sort_order=sort_order,
            limit=limit,
            offset=offset,
        )
        return await self.find_rollouts(query)

    async def query_attempts(
        self,
        rollout_id: str,
        *,
        sort_by: str | None = "sequence_id",
        sort_order: Literal["asc", "desc"] = "asc",
        limit: int = -1,
        offset: int = 0,
    ) -> PaginatedResult[Attempt]:
        check_text("rollout_id", rollout_id)
        query = AttemptQuery.checked(sort_by=sort_by, sort_order=sort_order, limit=limit, offset=offset)
        return await self.find_attempts(rollout_id, query)

    async def query_spans(
        self,
        rollout_id: str,
        attempt_id: str | Literal["latest"] | None = None,
        *,
        trace_id: str | None = None,
        trace_id_contains: str | None = None,
        span_id: str | None = None,
        span_id_contains: str | None = None,
        parent_id: str | None = None,
        parent_id_contains: str | None = None,
        name: str | None = None,
        name_contains: str | None = None,
        filter_logic: Literal["and", "or"] = "and",
        limit: int = -1,
        offset: int = 0,
        sort_by: str | None = "sequence_id",
        sort_order: Literal["asc", "desc"] = "asc",
    ) -> PaginatedResult[Span]:
        check_text("rollout_id", rollout_id)
        if attempt_id is not None:
            check_text("attempt_id", attempt_id)
        query = SpanQuery.checked(
            trace_id=trace_id,
            trace_id_contains=trace_id_contains,
            span_id=span_id,
            span_id_contains=span_id_contains,
            parent_id=parent_id,
            parent_id_contains=parent_id_contains,
            name=name,
            name_contains=name_contains,
            filter_logic=filter_logic,
            sort_by=sort_by,
            sort_order=sort_order,
            limit=limit,
            offset=offset,
        )
        return await self.find_spans(rollout_id, attempt_id, query)

    async def query_resources(
        self,
        *,
        resources_id: str | None = None,
        resources_id_contains: str | None = None,
        sort_by: str | None = None,
        sort_order: Literal["asc", "desc"] = "asc",
        limit: int = -1,
        offset: int = 0,
    ) -> PaginatedResult[ResourcesUpdate]:
        query = ResourcesQuery.checked(
            resources_id=resources_id,
            resources_id_contains=resources_id_contains,
            sort_by=sort_by,
            sort_order=sort_order,
            limit=limit,
            offset=offset,
        )
        return await self.find_resources(query)

    async def query_workers(
        self,
        *,
        status_in: Sequence[WorkerStatus] | None = None,
        worker_id_contains: str | None = None,
        filter_logic: Literal["and", "or"] = "and",
        sort_by: str | None = None,
        sort_order: Literal["asc", "desc"] = "asc",
        limit: int = -1,
        offset: int = 0,
    ) -> PaginatedResult[Worker]:
        query = WorkerQuery.checked(
            status_in=status_in,
            worker_id_contains=worker_id_contains,
            filter_logic=filter_logic,
            sort_by=sort_by,
            sort_order=sort_order,
            limit=limit,
            offset=offset,
        )
        return await self.find_workers(query)
