"""The reading half that stores share: what is kept, in the interface's shapes, pages and order."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from lightstream.schemas.errors import StoreError
from lightstream.schemas.records import AttemptState, ResourcesRecord, RolloutState, WorkerHeartbeat
from lightstream.schemas.types import (
    UNSET,
    Attempt,
    PaginatedResult,
    ResourcesUpdate,
    Rollout,
    RolloutStatus,
    Span,
    Unset,
    Worker,
    WorkerStatus,
)

from . import _events, _shapes
from ._checks import check_id, check_text
from ._json import to_json
from ._logged import LoggedStore
from ._query import Query, page_of, query_of
from ._rollouts_query import rollouts_query
from ._workers import WorkerChange, busy_with, without_lost, worker

__all__ = ["ReadingStore"]


class ReadingStore(LoggedStore):
    """A store whose queries need only to know what there is."""

    @abstractmethod
    async def _state_of(self, rollout_id: str) -> RolloutState | None:
        """A rollout as it stands."""

    async def _states_of(self, rollout_ids: Sequence[str]) -> dict[str, RolloutState]:
        """Those of these rollouts that exist, by id."""
        found = {rollout_id: await self._state_of(rollout_id) for rollout_id in rollout_ids}
        return {rollout_id: state for rollout_id, state in found.items() if state is not None}

    async def _attempts_of(self, rollout_ids: Sequence[str]) -> Mapping[str, Sequence[AttemptState]]:
        """The attempts of those of these rollouts that exist, by id."""
        return {rollout_id: state.attempts for rollout_id, state in (await self._states_of(rollout_ids)).items()}

    @abstractmethod
    async def _page_of(self, query: Query) -> tuple[list[RolloutState], int]:
        """The rollouts of one page, in its order, and how many match in all."""

    @abstractmethod
    async def _page_of_spans(self, rollout_id: str, attempt_id: str | None, query: Query) -> tuple[list[Span], int]:
        """Of a rollout's spans, or of one attempt's, those of one page, in its order, and how many match in all.

        They are the caller's own. What counts as inserted is a span's first appearance.
        """

    @abstractmethod
    async def _all_resources(self) -> list[ResourcesRecord]:
        """All resources, in the order they were first stored."""

    @abstractmethod
    async def _all_workers(self) -> list[WorkerHeartbeat]:
        """All workers, in the order they were first heard of."""

    @abstractmethod
    async def _worker(self, worker_id: str) -> WorkerHeartbeat | None:
        """One worker."""

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
        query = rollouts_query(
            status_in=status_in if status_in is not None else status,
            rollout_id_in=rollout_id_in if rollout_id_in is not None else rollout_ids,
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
        states, total = await self._page_of(query)
        items = [_shapes.rollout_as_it_stands(state) for state in states]
        return page_of(items, limit=limit, offset=offset, total=total)

    async def get_rollout_by_id(self, rollout_id: str) -> Rollout | None:
        check_text("rollout_id", rollout_id)
        state = await self._state_of(rollout_id)
        return None if state is None else _shapes.rollout_as_it_stands(state)

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
        query = query_of(Attempt, sort_by=sort_by, sort_order=sort_order, limit=limit, offset=offset)
        attempts = (await self._attempts_of([rollout_id])).get(rollout_id, ())
        return query.page([_shapes.attempt(rollout_id, attempt) for attempt in attempts], getattr)

    async def get_latest_attempt(self, rollout_id: str) -> Attempt | None:
        check_text("rollout_id", rollout_id)
        attempts = (await self._attempts_of([rollout_id])).get(rollout_id)
        return _shapes.attempt(rollout_id, attempts[-1]) if attempts else None

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
        query = query_of(
            Span,
            exact={"trace_id": trace_id, "span_id": span_id, "parent_id": parent_id, "name": name},
            contains={
                "trace_id": trace_id_contains,
                "span_id": span_id_contains,
                "parent_id": parent_id_contains,
                "name": name_contains,
            },
            filter_logic=filter_logic,
            sort_by=sort_by,
            sort_order=sort_order,
            limit=limit,
            offset=offset,
        )
        if attempt_id == _events.LATEST:
            latest = await self.get_latest_attempt(rollout_id)
            if latest is None:
                return query.page([], getattr)
            attempt_id = latest.attempt_id
        items, total = await self._page_of_spans(rollout_id, attempt_id, query)
        return page_of(items, limit=limit, offset=offset, total=total)

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
        query = query_of(
            ResourcesUpdate,
            exact={"resources_id": resources_id},
            contains={"resources_id": resources_id_contains},
            sort_by=sort_by,
            sort_order=sort_order,
            limit=limit,
            offset=offset,
        )
        return query.page([_shapes.resources_update(record) for record in await self._all_resources()], getattr)

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
        query = query_of(
            Worker,
            within={"status": ("status_in", status_in)},
            contains={"worker_id": worker_id_contains},
            filter_logic=filter_logic,
            sort_by=sort_by,
            sort_order=sort_order,
            limit=limit,
            offset=offset,
        )
        records = await self._as_they_stand(await self._all_workers())
        return query.page([worker(record) for record in records], getattr)

    async def get_worker_by_id(self, worker_id: str) -> Worker | None:
        check_text("worker_id", worker_id)
        record = await self._worker(worker_id)
        return None if record is None else worker((await self._as_they_stand([record]))[0])

    async def _as_they_stand(self, workers: Sequence[WorkerHeartbeat]) -> list[WorkerHeartbeat]:
        """Workers without what a deadline took from them."""
        rollout_ids = {rollout_id for record in workers for rollout_id in busy_with(record)}
        attempts = await self._attempts_of(sorted(rollout_ids)) if rollout_ids else {}
        return [without_lost(record, attempts) for record in workers]

    async def update_worker(self, worker_id: str, heartbeat_stats: dict[str, Any] | Unset = UNSET) -> Worker:
        check_id("worker_id", worker_id)
        stats = None
        if heartbeat_stats is not UNSET:
            if not isinstance(heartbeat_stats, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  # untyped callers
                raise StoreError(f"heartbeat_stats is {heartbeat_stats!r}; it must be a dictionary")
            stats = to_json("heartbeat_stats", heartbeat_stats)
        change = WorkerChange.alive(self._clock.now_unix_nano(), stats)
        written = await self._keep_worker(worker_id, change, wait=True)
        return worker((await self._as_they_stand([written]))[0])
