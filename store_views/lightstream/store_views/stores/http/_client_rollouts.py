"""The client's half about rollouts and attempts."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from typing import Any, Literal, get_args

from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.records import ANY_RUN, WorkerHeartbeat
from lightstream.schemas.types import (
    UNSET,
    Assembly,
    Attempt,
    AttemptedRollout,
    AttemptStatus,
    EnqueueRolloutRequest,
    PaginatedResult,
    Rollout,
    RolloutConfig,
    RolloutMode,
    RolloutStatus,
    TaskInput,
    Unset,
)

from .. import queries
from ..queries import rollouts_query
from ..validation import (
    check_dequeue,
    check_report,
    check_timeout,
    checked_attempts,
    checked_ids,
    checked_requests,
    enough,
)
from ._connection import Connection
from ._wire import UNFINISHED, WAIT_S_MAX, path_segment

__all__ = ["ClientOfRollouts", "given", "known_words", "limit_asked", "page_of"]


class ClientOfRollouts(LightningStore):
    """Rollouts and attempts over a connection."""

    _connection: Connection

    async def start_rollout(
        self,
        input: TaskInput,  # noqa: A002  # the interface's name
        mode: RolloutMode | None = None,
        resources_id: str | None = None,
        config: RolloutConfig | None = None,
        metadata: dict[str, Any] | None = None,
        worker_id: str | None = None,
        *,
        rollout_id: str | None = None,
        run_id: str | None = None,
        group_id: str | None = None,
        group_size: int | None = None,
        assembly: Assembly | None = None,
    ) -> AttemptedRollout:
        request = EnqueueRolloutRequest(
            input=input,
            mode=mode,
            resources_id=resources_id,
            config=config,
            metadata=metadata,
            rollout_id=rollout_id,
            run_id=run_id,
            group_id=group_id,
            group_size=group_size,
            assembly=assembly,
        )
        reply = await self._connection.post("/rollouts", {**dict(request), "worker_id": worker_id})
        return AttemptedRollout.model_validate(reply.value)

    async def enqueue_many_rollouts(self, rollouts: Sequence[EnqueueRolloutRequest]) -> list[Rollout]:
        requests = checked_requests(rollouts)
        if not requests:
            return []
        reply = await self._connection.post("/queues/rollouts/enqueue", {"rollouts": requests})
        return [rollout_of(value) for value in reply.value]

    async def dequeue_many_rollouts(
        self, *, limit: int = 1, worker_id: str | None = None, timeout_s: float = 0.0, run_id: str = ANY_RUN
    ) -> list[AttemptedRollout]:
        check_dequeue(limit, timeout_s, worker_id, run_id)
        until = time.monotonic() + timeout_s
        while True:
            left = until - time.monotonic()
            body: dict[str, Any] = {
                "limit": limit,
                "worker_id": worker_id,
                "timeout_s": max(0.0, min(left, WAIT_S_MAX)),
            }
            if run_id != ANY_RUN:
                body["run_id"] = run_id
            reply = await self._connection.post("/queues/rollouts/dequeue", body, dispatches=True)
            if reply.value or limit <= 0 or time.monotonic() >= until:
                return [AttemptedRollout.model_validate(value) for value in reply.value]

    async def start_attempt(self, rollout_id: str, worker_id: str | None = None) -> AttemptedRollout:
        path = f"/rollouts/{path_segment('rollout_id', rollout_id)}/attempts"
        return AttemptedRollout.model_validate((await self._connection.post(path, {"worker_id": worker_id})).value)

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
        statuses = kept(status if status_in is None else status_in)
        ids = kept(rollout_ids if rollout_id_in is None else rollout_id_in)
        rollouts_query(
            status_in=statuses,
            rollout_id_in=ids,
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
        body = {
            "status_in": known_words(statuses, RolloutStatus),
            "rollout_id_in": ids,
            "rollout_id_contains": rollout_id_contains,
            "filter_logic": filter_logic,
            "sort_by": sort_by,
            "sort_order": sort_order,
            "limit": limit_asked(limit),
            "offset": offset,
            "rollout_id_prefix": rollout_id_prefix,
            "started_after": started_after,
            "started_before": started_before,
        }
        page = (await self._connection.post("/rollouts/search", body, writes=False)).value
        return page_of(page, [rollout_of(value) for value in page["items"]], limit)

    async def get_rollout_by_id(self, rollout_id: str) -> Rollout | None:
        reply = await self._connection.get(f"/rollouts/{path_segment('rollout_id', rollout_id)}")
        return None if reply.value is None else rollout_of(reply.value)

    async def wait_for_rollouts(
        self,
        *,
        rollout_ids: Sequence[str],
        timeout: float | None = None,  # noqa: ASYNC109  # the interface's name
        count: int | None = None,
        share: float | None = None,
    ) -> list[Rollout]:
        wanted = checked_ids("rollout_ids", rollout_ids)
        check_timeout("timeout", timeout, may_be_none=True)
        enough(len(set(wanted)), count, share)
        until = math.inf if timeout is None else time.monotonic() + timeout
        body: dict[str, Any] = {"rollout_ids": wanted, "count": count, "share": share}
        while True:
            left = until - time.monotonic()
            body["timeout"] = None if left == math.inf else max(0.0, left)
            reply = await self._connection.post("/waits/rollouts", body, writes=False)
            if UNFINISHED not in reply.headers or time.monotonic() >= until:
                return [rollout_of(value) for value in reply.value]

    async def update_rollout(
        self,
        rollout_id: str,
        input: TaskInput | Unset = UNSET,  # noqa: A002  # the interface's name
        mode: RolloutMode | Unset | None = UNSET,
        resources_id: str | Unset | None = UNSET,
        status: RolloutStatus | Unset = UNSET,
        config: RolloutConfig | Unset = UNSET,
        metadata: dict[str, Any] | Unset | None = UNSET,
    ) -> Rollout:
        body = given(input=input, mode=mode, resources_id=resources_id, status=status, config=config, metadata=metadata)
        path = f"/rollouts/{path_segment('rollout_id', rollout_id)}"
        return rollout_of((await self._connection.post(path, body)).value)

    async def cancel_rollout(self, rollout_id: str, reason: str = "") -> Rollout:
        path = f"/rollouts/{path_segment('rollout_id', rollout_id)}/cancel"
        return rollout_of((await self._connection.post(path, {"reason": reason})).value)

    async def query_attempts(
        self,
        rollout_id: str,
        *,
        sort_by: str | None = "sequence_id",
        sort_order: Literal["asc", "desc"] = "asc",
        limit: int = -1,
        offset: int = 0,
    ) -> PaginatedResult[Attempt]:
        path = f"/rollouts/{path_segment('rollout_id', rollout_id)}/attempts/search"
        queries.query_of(Attempt, sort_by=sort_by, sort_order=sort_order, limit=limit, offset=offset)
        body = {"sort_by": sort_by, "sort_order": sort_order, "limit": limit_asked(limit), "offset": offset}
        page = (await self._connection.post(path, body, writes=False)).value
        return page_of(page, [Attempt.model_validate(value) for value in page["items"]], limit)

    async def get_latest_attempt(self, rollout_id: str) -> Attempt | None:
        reply = await self._connection.get(f"/rollouts/{path_segment('rollout_id', rollout_id)}/attempts/latest")
        return None if reply.value is None else Attempt.model_validate(reply.value)

    async def update_attempt(
        self,
        rollout_id: str,
        attempt_id: str | Literal["latest"],
        status: AttemptStatus | Unset = UNSET,
        worker_id: str | Unset = UNSET,
        last_heartbeat_time: float | Unset = UNSET,
        metadata: dict[str, Any] | Unset | None = UNSET,
        *,
        error_type: str | None = None,
        error_message: str | None = None,
    ) -> Attempt:
        rollout, attempt = path_segment("rollout_id", rollout_id), path_segment("attempt_id", attempt_id)
        body = given(status=status, worker_id=worker_id, last_heartbeat_time=last_heartbeat_time, metadata=metadata)
        body |= {"error_type": error_type, "error_message": error_message}
        return Attempt.model_validate(
            (await self._connection.post(f"/rollouts/{rollout}/attempts/{attempt}", body)).value
        )

    async def heartbeat(self, worker: WorkerHeartbeat, attempts: Sequence[tuple[str, str]]) -> None:
        check_report(worker)
        named = checked_attempts("attempts", attempts)
        path = f"/workers/{path_segment('worker_id', worker.worker_id)}/heartbeat"
        await self._connection.post(path, {"worker": worker, "attempts": named})


def given(**arguments: Any) -> dict[str, Any]:
    """The arguments that were given."""
    return {name: value for name, value in arguments.items() if value is not UNSET}


def kept(values: Any) -> Any:
    """Values that can be looked at twice: an iterator is empty after the first time."""
    return list(values) if isinstance(values, Iterator) else values


def rollout_of(value: Any) -> Rollout:
    """A rollout, with its attempt where the server sent one."""
    return (AttemptedRollout if "attempt" in value else Rollout).model_validate(value)


def limit_asked(limit: int) -> int:
    """The limit to ask a server for: pages of none are no question over HTTP, so :func:`page_of` makes one of one."""
    return 1 if limit == 0 else limit


def page_of(page: dict[str, Any], items: list[Any], limit: int) -> PaginatedResult[Any]:
    """The server's page with parsed items, as ``limit`` asked for it."""
    kept = [] if limit == 0 else items
    return queries.page_of(kept, limit=limit, offset=page["offset"], total=page["total"])


def known_words(words: Any, known: Any) -> Any:
    """A filter without words that nothing can match: over HTTP they are an error, in a store they find nothing.

    Args:
        known: the ``Literal`` of all words.
    """
    if not isinstance(words, (list, tuple, set, frozenset)):
        return words
    return [word for word in words if word in get_args(known) or not isinstance(word, str)]
