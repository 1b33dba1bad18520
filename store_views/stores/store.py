"""The store: calls become events, the life cycle's results become answers, and queries become pages.

Where everything is kept is a :class:`~.log.Log`: Kafka with the view, or this process's memory.
"""

from __future__ import annotations

import contextvars
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from lightstream.runtime.clock import Clock
from lightstream.schemas.errors import LightstreamError, NotFoundError, StoreError
from lightstream.schemas.records import (
    ANY_RUN,
    AttemptState,
    ResourcesRecord,
    RolloutEvent,
    RolloutState,
    VerdictOutcome,
    WorkerHeartbeat,
)
from lightstream.schemas.types import (
    UNSET,
    Assembly,
    Attempt,
    AttemptedRollout,
    AttemptStatus,
    EnqueueRolloutRequest,
    LightningStoreCapabilities,
    LightningStoreStatistics,
    LogPositions,
    NamedResources,
    PaginatedResult,
    ResourcesUpdate,
    Rollout,
    RolloutConfig,
    RolloutMode,
    RolloutStatus,
    Span,
    TaskInput,
    Unset,
    Worker,
    resource_adapter,
)
from lightstream.stream_processors.core.lifecycle import broken_id

from . import convert, events
from .identity import new_id
from .json_text import check_depth, to_json
from .log import Log
from .queries import AttemptQuery, ResourcesQuery, RolloutQuery, SpanQuery, WorkerQuery, page_of
from .querying import QueriedStore
from .validation import (
    check_dequeue,
    check_id,
    check_report,
    check_text,
    check_timeout,
    checked_attempts,
    checked_ids,
    checked_requests,
    checked_resources,
    checked_spans,
    enough,
)
from .workers import WorkerChange, reported, without_lost, worker

logger = logging.getLogger(__name__)

WRITE_IDS_MAX = 8
"""A write is repeated within seconds; in between, few others write the same resources."""


class Store(QueriedStore):
    """For callers of one event loop.

    Args:
        log: where everything is kept.
        clock: of events and workers.
    """

    def __init__(self, log: Log, clock: Clock) -> None:
        self._log = log
        self._clock = clock

    async def start(self) -> None:
        await self._log.start()

    async def close(self) -> None:
        await self._log.close()

    # --- about the store

    @property
    def capabilities(self) -> LightningStoreCapabilities:
        takes = self._log.takes_otlp_traces()
        return LightningStoreCapabilities(thread_safe=True, async_safe=True, zero_copy=False, otlp_traces=takes)

    def otlp_traces_endpoint(self) -> str:
        return self._log.otlp_traces_endpoint()

    async def statistics(self) -> LightningStoreStatistics:
        return await self._log.statistics()

    def positions(self) -> LogPositions:
        return self._log.positions()

    async def see_in_loop(self, positions: LogPositions) -> None:
        """As ``see``, without blocking the loop."""
        await self._log.see(positions)

    # --- rollouts

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
        latest = await self._latest_resources_id() if resources_id is None else None
        now = self._clock.now_unix_nano()
        event = events.rollout_started(request, latest, worker_id, now)
        state = await self._submit(event)
        if not state.attempts or state.attempts[0].attempt_id != event.attempt_id:
            _raise_refusal(state)  # else this call made it: now, or when it was made before and its answer lost
        return await self._leased(state, state.attempts[0], dequeued=False)

    async def enqueue_many_rollouts(self, rollouts: Sequence[EnqueueRolloutRequest]) -> list[Rollout]:
        requests = checked_requests(rollouts)
        latest: str | None = None
        if any(request.resources_id is None for request in requests):
            latest = await self._latest_resources_id()
        now = self._clock.now_unix_nano()
        # A nanosecond apart, so that their order can be told by their times.
        written = [events.enqueued(request, latest, now + number) for number, request in enumerate(requests)]
        for event in written:
            if event.rollout is not None and (broken := self._log.limits.broken_rule(event.rollout)):
                raise StoreError(broken)
        return [convert.rollout(state) for state in await self._all_applied(written)]

    async def dequeue_many_rollouts(
        self, *, limit: int = 1, worker_id: str | None = None, timeout_s: float = 0.0, run_id: str = ANY_RUN
    ) -> list[AttemptedRollout]:
        check_dequeue(limit, timeout_s, worker_id, run_id)
        if limit <= 0:
            return []
        states = await self._log.lease(limit, worker_id, timeout_s, run_id)
        if not states and worker_id is not None:
            known, now = self._log.worker(worker_id), self._clock.now_unix_nano()
            if known is None or self._log.notes_idle(known, now):
                await self._put_worker(worker_id, WorkerChange.found_nothing(known, now))
        return [await self._leased(state, state.attempts[-1], dequeued=True) for state in states]

    async def requeue(self, rollouts: Sequence[AttemptedRollout]) -> None:
        """Put rollouts back into the queue that were taken for a caller who has left.

        One for which that fails is logged: it counts as unresponsive in the end.
        """
        for rollout in rollouts:
            # Its id is new, also where the caller's ids are repeatable: to put back a rollout twice is two writes.
            event = contextvars.Context().run(
                events.lease_returned, rollout.rollout_id, rollout.attempt.attempt_id, self._clock.now_unix_nano()
            )
            try:
                await self._submit(event)
            except LightstreamError as error:
                logger.warning("rollout %s was not requeued: %s", rollout.rollout_id, error)

    async def wait_for_rollouts(
        self,
        *,
        rollout_ids: Sequence[str],
        timeout: float | None = None,  # noqa: ASYNC109  # the interface's name
        count: int | None = None,
        share: float | None = None,
    ) -> list[Rollout]:
        ids = checked_ids("rollout_ids", rollout_ids)
        check_timeout("timeout", timeout, may_be_none=True)
        unique_ids = list(dict.fromkeys(ids))
        needed = enough(len(unique_ids), count, share)
        ended = await self._log.wait_ended(unique_ids, needed, timeout) if unique_ids else {}
        return [convert.rollout_as_it_stands(ended[rollout_id]) for rollout_id in ids if rollout_id in ended]

    async def heartbeat(self, worker: WorkerHeartbeat, attempts: Sequence[tuple[str, str]]) -> None:
        check_report(worker)
        named = checked_attempts("attempts", attempts)
        now = self._clock.now_unix_nano()
        beats = [events.heartbeat(rollout_id, attempt_id, worker.worker_id, now) for rollout_id, attempt_id in named]
        await self._log.heartbeat(worker.worker_id, lambda known: reported(known, worker), beats)

    async def start_attempt(self, rollout_id: str, worker_id: str | None = None) -> AttemptedRollout:
        state = await self._applied(events.attempt_added(rollout_id, worker_id, self._clock.now_unix_nano()))
        return await self._leased(state, state.attempts[-1], dequeued=False)

    async def update_rollout(
        self,
        rollout_id: str,
        input: TaskInput | Unset = UNSET,  # noqa: A002  # the interface's name
        mode: RolloutMode | Unset | None = UNSET,
        resources_id: str | Unset | None = UNSET,
        status: RolloutStatus | Unset = UNSET,
        config: RolloutConfig | Unset = UNSET,
        metadata: dict[str, Any] | Unset | None = UNSET,
        *,
        if_attempt: str | None = None,
    ) -> Rollout:
        if if_attempt is not None:
            check_id("if_attempt", if_attempt)
        changes = events.rollout_changes(
            input=input, mode=mode, resources_id=resources_id, status=status, config=config, metadata=metadata
        )
        event = events.rollout_updated(rollout_id, changes, self._clock.now_unix_nano(), if_attempt)
        return convert.rollout_as_it_stands(await self._applied(event))

    async def cancel_rollout(self, rollout_id: str, reason: str = "") -> Rollout:
        event = events.cancelled(rollout_id, reason, self._clock.now_unix_nano())
        return convert.rollout_as_it_stands(await self._applied(event))

    # --- attempts

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
        event = events.attempt_updated(
            rollout_id,
            attempt_id,
            events.attempt_changes(status, worker_id, last_heartbeat_time, metadata),
            self._clock.now_unix_nano(),
            error_type=error_type,
            error_message=error_message,
        )
        state = await self._applied(event)
        is_latest = attempt_id == events.LATEST
        found = [a for a in state.attempts if a.attempt_id == attempt_id] or (state.attempts[-1:] if is_latest else [])
        attempt = found[0]
        if attempt.worker_id and (status is not UNSET or worker_id is not UNSET):
            change = WorkerChange.of_attempt(rollout_id, attempt, self._clock.now_unix_nano())
            await self._put_worker(attempt.worker_id, change)
        return convert.attempt(rollout_id, attempt)

    # --- spans

    async def add_many_spans(self, spans: Sequence[Span]) -> list[Span]:
        spans = checked_spans(spans)
        encoded = self._log.encoded_spans(spans)  # all can be kept, or nothing is said of any
        now = self._clock.now_unix_nano()
        highest: dict[tuple[str, str], int] = {}
        for span in spans:
            key = (span.rollout_id, span.attempt_id)
            highest[key] = max(span.sequence_id, highest.get(key, 0))
        written = [events.span_added(*key, number, now) for key, number in highest.items()]
        await self._all_applied(written)
        return await self._log.append_spans(spans, encoded)

    async def get_many_span_sequence_ids(self, rollout_attempt_ids: Sequence[tuple[str, str]]) -> list[int]:
        named = checked_attempts("rollout_attempt_ids", rollout_attempt_ids)
        now = self._clock.now_unix_nano()
        counts = Counter(rollout_id for rollout_id, _ in named)
        written = [events.numbers_taken(rollout_id, count, now) for rollout_id, count in counts.items()]
        states = await self._all_applied(written)
        last = {state.rollout.rollout_id: state.span_sequence for state in states}
        numbers: list[int] = []
        for rollout_id, _ in named:
            numbers.append(last[rollout_id] - counts[rollout_id] + 1)
            counts[rollout_id] -= 1
        return numbers

    # --- resources

    async def get_resources_by_id(self, resources_id: str, *, timeout_s: float = 0.0) -> ResourcesUpdate | None:
        check_text("resources_id", resources_id)
        return await self._found_resources(resources_id, timeout_s)

    async def get_latest_resources(self, *, timeout_s: float = 0.0) -> ResourcesUpdate | None:
        return await self._found_resources(None, timeout_s)

    async def _found_resources(self, resources_id: str | None, timeout_s: float) -> ResourcesUpdate | None:
        check_timeout("timeout_s", timeout_s)
        found = await self._log.find_resources(resources_id, timeout_s)
        return None if found is None else convert.resources_update(found)

    async def add_resources(self, resources: NamedResources) -> ResourcesUpdate:
        resources_id = f"rs-{new_id('resources', 12)}"
        known = await self.get_resources_by_id(resources_id)
        return known or await self.update_resources(resources_id, resources)  # known: made before, its answer lost

    async def update_resources(self, resources_id: str, resources: NamedResources) -> ResourcesUpdate:
        check_id("resources_id", resources_id)
        now = self._clock.now_unix_nano()
        named = {name: _resource_json(name, resource) for name, resource in checked_resources(resources).items()}
        _check_size(named, self._log.limits.resources_bytes_max)
        write_id = new_id("update_resources", 32)

        def next_version(known: ResourcesRecord | None) -> ResourcesRecord:
            if known is not None and write_id in known.write_ids:
                return known  # done before, its answer lost
            return ResourcesRecord(
                resources_id=resources_id,
                version=1 if known is None else known.version + 1,
                run_id="" if known is None else known.run_id,
                resources=named,
                created_unix_nano=now if known is None else known.created_unix_nano,
                updated_unix_nano=now,
                write_ids=[*(() if known is None else known.write_ids), write_id][-WRITE_IDS_MAX:],
            )

        return convert.resources_update(await self._log.put_resources(resources_id, next_version))

    async def _latest_resources_id(self) -> str | None:
        latest = await self.get_latest_resources()
        return None if latest is None else latest.resources_id

    # --- queries

    async def find_rollouts(self, query: RolloutQuery) -> PaginatedResult[Rollout]:
        states, total = await self._log.page_of_rollouts(query)
        items = [convert.rollout_as_it_stands(state) for state in states]
        return page_of(items, limit=query.limit, offset=query.offset, total=total)

    async def get_rollout_by_id(self, rollout_id: str) -> Rollout | None:
        check_text("rollout_id", rollout_id)
        state = (await self._log.states_of([rollout_id])).get(rollout_id)
        return None if state is None else convert.rollout_as_it_stands(state)

    async def find_attempts(self, rollout_id: str, query: AttemptQuery) -> PaginatedResult[Attempt]:
        attempts = (await self._log.attempts_of([rollout_id])).get(rollout_id, ())
        return query.page([convert.attempt(rollout_id, attempt) for attempt in attempts], getattr)

    async def get_latest_attempt(self, rollout_id: str) -> Attempt | None:
        check_text("rollout_id", rollout_id)
        attempts = (await self._log.attempts_of([rollout_id])).get(rollout_id)
        return convert.attempt(rollout_id, attempts[-1]) if attempts else None

    async def find_spans(self, rollout_id: str, attempt_id: str | None, query: SpanQuery) -> PaginatedResult[Span]:
        if attempt_id == events.LATEST:
            latest = await self.get_latest_attempt(rollout_id)
            if latest is None:
                return query.page([], getattr)
            attempt_id = latest.attempt_id
        items, total = await self._log.page_of_spans(rollout_id, attempt_id, query)
        return page_of(items, limit=query.limit, offset=query.offset, total=total)

    async def find_resources(self, query: ResourcesQuery) -> PaginatedResult[ResourcesUpdate]:
        return query.page([convert.resources_update(record) for record in await self._log.all_resources()], getattr)

    async def find_workers(self, query: WorkerQuery) -> PaginatedResult[Worker]:
        records = await self._as_they_stand(self._log.workers())
        return query.page([worker(record) for record in records], getattr)

    async def get_worker_by_id(self, worker_id: str) -> Worker | None:
        check_text("worker_id", worker_id)
        record = self._log.worker(worker_id)
        return None if record is None else worker((await self._as_they_stand([record]))[0])

    async def _as_they_stand(self, workers: Sequence[WorkerHeartbeat]) -> list[WorkerHeartbeat]:
        """Workers without what a deadline took from them."""
        rollout_ids = {rollout_id for record in workers for rollout_id in record.rollout_ids}
        attempts = await self._log.attempts_of(sorted(rollout_ids)) if rollout_ids else {}
        return [without_lost(record, attempts) for record in workers]

    async def update_worker(self, worker_id: str, heartbeat_stats: dict[str, Any] | Unset | None = UNSET) -> Worker:
        check_id("worker_id", worker_id)
        stats = None
        if heartbeat_stats is not UNSET and heartbeat_stats is not None:
            if not isinstance(heartbeat_stats, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  # untyped callers
                raise StoreError(f"heartbeat_stats is {heartbeat_stats!r}; it must be a dictionary")
            stats = to_json("heartbeat_stats", heartbeat_stats)
        change = WorkerChange.alive(self._clock.now_unix_nano(), stats)
        written = await self._put_worker(worker_id, change, wait=True)
        return worker((await self._as_they_stand([written]))[0])

    # --- within

    async def _put_worker(self, worker_id: str, change: WorkerChange, *, wait: bool = False) -> WorkerHeartbeat:
        return await self._log.put_worker(worker_id, lambda known: change.applied_to(worker_id, known), wait=wait)

    async def _leased(self, state: RolloutState, attempt: AttemptState, *, dequeued: bool) -> AttemptedRollout:
        """An attempt on its way to the worker that asked for it."""
        if attempt.worker_id:
            now = self._clock.now_unix_nano()
            change = WorkerChange.of_attempt(state.rollout.rollout_id, attempt, now, dequeued=dequeued)
            await self._put_worker(attempt.worker_id, change)
        return convert.attempted_rollout(state, attempt)

    async def _applied(self, event: RolloutEvent) -> RolloutState:
        """The state after an event that was applied or ignored.

        Raises:
            NotFoundError: the rollout or attempt does not exist.
            StoreError: the event was rejected.
        """
        state = await self._submit(event)
        _raise_refusal(state)
        return state

    async def _all_applied(self, written: Sequence[RolloutEvent]) -> list[RolloutState]:
        """The states after events of which each was applied or ignored; raises as :meth:`_applied`.

        Ids are checked for all before any is written. What only the life cycle can tell (an attempt that does not
        exist) concerns one event: the others hold though this raises.
        """
        for event in written:
            if broken := broken_id(event):
                raise StoreError(broken)
        states = await self._log.submit(written)
        for state in states:
            _raise_refusal(state)
        return states

    async def _submit(self, event: RolloutEvent) -> RolloutState:
        """The state after an event, whatever became of it.

        Raises:
            StoreError: no state can carry the event's ids; it was not written.
        """
        if broken := broken_id(event):
            raise StoreError(broken)
        return (await self._log.submit([event]))[0]


def _raise_refusal(state: RolloutState) -> None:
    """Raise for a result of ``not_found`` or ``refused``."""
    if state.verdict.outcome is VerdictOutcome.NOT_FOUND:
        raise NotFoundError(state.verdict.reason)
    if state.verdict.outcome is VerdictOutcome.REFUSED:
        raise StoreError(state.verdict.reason)


def _check_size(named: Mapping[str, str], bytes_max: int) -> None:
    size_bytes = sum(len(name.encode()) + len(text.encode()) for name, text in named.items())
    if size_bytes > bytes_max:
        largest = max(named, key=lambda name: len(named[name]))
        raise StoreError(
            f"the resources have {size_bytes:,} bytes, the largest is {largest}; a record holds {bytes_max:,} of them.",
            next_step="Put large values into a file or folder, and name it by its address: Artefact.of(path).",
        )


def _resource_json(name: str, resource: Any) -> str:
    """The resource as it is kept. Its fields may have been assigned anything; what is written can be read back."""
    try:
        text = resource_adapter.dump_json(resource, warnings=False)
        check_depth(name, text.decode())
        resource_adapter.validate_json(text)
    except PydanticSerializationError as error:
        to_json(name, resource)  # its error names the limit, if it is nested too deeply
        raise StoreError(f"{name} cannot be kept: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"][1:])
        raise StoreError(f"{name} cannot be kept: {field} is {first['input']!r:.200}; {first['msg']}") from error
    return text.decode()
