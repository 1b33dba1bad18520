"""What every store on the log shares: a call becomes an event, the life cycle judges it, the verdict is the answer."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from lightstream.runtime.clock import Clock, SystemClock
from lightstream.schemas.errors import NotFoundError, StoreError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.records import (
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
    NamedResources,
    ResourcesUpdate,
    Rollout,
    RolloutConfig,
    RolloutMode,
    Span,
    TaskInput,
    Unset,
    resource_adapter,
)
from lightstream.schemas.types import RolloutStatus as RolloutStatusName
from lightstream.stream_processors.core.lifecycle import Limits, broken_id

from . import _events, _shapes
from ._checks import check_id, checked_attempts, checked_requests, checked_resources, checked_spans
from ._identity import new_id
from ._json import to_json
from ._json_depth import check_depth
from ._workers import WorkerChange

__all__ = ["LoggedStore", "NextVersion"]

NextVersion: TypeAlias = Callable[[ResourcesRecord | None], ResourcesRecord]

WRITE_IDS_MAX = 8
"""Whoever repeats a write does so within seconds; in between, few others write the same resources."""


class LoggedStore(LightningStore, ABC):
    """The writing half of a store; where events go, and how they are answered, is up to the implementation."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()

    # --- what an implementation provides

    @abstractmethod
    async def _judge(self, event: RolloutEvent) -> RolloutState:
        """Write an event and return the state that carries its verdict."""

    async def _judge_all(self, events: Sequence[RolloutEvent]) -> list[RolloutState]:
        """As :meth:`_judge`, for several at once. What no record can hold is found before any is written."""
        return await asyncio.gather(*map(self._judge, events))

    @abstractmethod
    def _encoded_spans(self, spans: Sequence[Span]) -> Sequence[bytes]:
        """The spans as :meth:`_keep_spans` writes them; empty where they are kept as they are.

        Raises:
            StoreError: one is too large, or cannot be written down.
        """

    @abstractmethod
    async def _keep_spans(self, spans: Sequence[Span], encoded: Sequence[bytes]) -> list[Span]:
        """Make spans durable whose attempts exist; returns those that were new."""

    @abstractmethod
    async def _keep_resources(self, resources_id: str, make: NextVersion) -> ResourcesRecord:
        """Make the next version of these resources durable; it is the latest then.

        ``make`` makes it of the last version there is, or returns that one if nothing is to be written. It may be
        called again, with another one: no two calls that write have made theirs of the same.
        """

    @property
    @abstractmethod
    def _limits(self) -> Limits:
        """What a rollout may ask for at most, and what a record holds, by this store's settings."""

    @abstractmethod
    async def _keep_worker(self, worker_id: str, change: WorkerChange, *, wait: bool = False) -> WorkerHeartbeat:
        """Take down what a worker did; returns its record after that.

        Without ``wait`` it need not be durable yet: nothing is decided by it, and the event it follows from is.
        """

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
        event = _events.rollout_started(request, latest, worker_id, now)
        state = await self._judged(event)
        if not state.attempts or state.attempts[0].attempt_id != event.attempt_id:
            _raise_refusal(state)  # else this call made it: now, or when it was made before and its answer lost
        return await self._handed_out(state, state.attempts[0], dequeued=False)

    async def enqueue_many_rollouts(self, rollouts: Sequence[EnqueueRolloutRequest]) -> list[Rollout]:
        requests = checked_requests(rollouts)
        latest: str | None = None
        if any(request.resources_id is None for request in requests):
            latest = await self._latest_resources_id()
        now = self._clock.now_unix_nano()
        # A nanosecond apart, so that their order can be told by their times.
        events = [_events.enqueued(request, latest, now + number) for number, request in enumerate(requests)]
        for event in events:
            if event.rollout is not None and (broken := self._limits.broken_rule(event.rollout)):
                raise StoreError(broken)
        return [_shapes.rollout(state) for state in await self._all_applied(events)]

    async def start_attempt(self, rollout_id: str, worker_id: str | None = None) -> AttemptedRollout:
        state = await self._applied(_events.attempt_added(rollout_id, worker_id, self._clock.now_unix_nano()))
        return await self._handed_out(state, state.attempts[-1], dequeued=False)

    async def update_rollout(
        self,
        rollout_id: str,
        input: TaskInput | Unset = UNSET,  # noqa: A002  # the interface's name
        mode: RolloutMode | Unset | None = UNSET,
        resources_id: str | Unset | None = UNSET,
        status: RolloutStatusName | Unset = UNSET,
        config: RolloutConfig | Unset = UNSET,
        metadata: dict[str, Any] | Unset | None = UNSET,
    ) -> Rollout:
        changes = _events.rollout_changes(
            input=input, mode=mode, resources_id=resources_id, status=status, config=config, metadata=metadata
        )
        event = _events.rollout_updated(rollout_id, changes, self._clock.now_unix_nano())
        return _shapes.rollout_as_it_stands(await self._applied(event))

    async def cancel_rollout(self, rollout_id: str, reason: str = "") -> Rollout:
        event = _events.cancelled(rollout_id, reason, self._clock.now_unix_nano())
        return _shapes.rollout_as_it_stands(await self._applied(event))

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
        event = _events.attempt_updated(
            rollout_id,
            attempt_id,
            _events.attempt_changes(status, worker_id, last_heartbeat_time, metadata),
            self._clock.now_unix_nano(),
            error_type=error_type,
            error_message=error_message,
        )
        state = await self._applied(event)
        is_latest = attempt_id == _events.LATEST
        found = [a for a in state.attempts if a.attempt_id == attempt_id] or (state.attempts[-1:] if is_latest else [])
        attempt = found[0]
        if attempt.worker_id and (status is not UNSET or worker_id is not UNSET):
            change = WorkerChange.of_attempt(rollout_id, attempt, self._clock.now_unix_nano())
            await self._keep_worker(attempt.worker_id, change)
        return _shapes.attempt(rollout_id, attempt)

    # --- spans

    async def add_many_spans(self, spans: Sequence[Span]) -> list[Span]:
        spans = checked_spans(spans)
        encoded = self._encoded_spans(spans)  # all can be kept, or nothing is said of any
        now = self._clock.now_unix_nano()
        highest: dict[tuple[str, str], int] = {}
        for span in spans:
            key = (span.rollout_id, span.attempt_id)
            highest[key] = max(span.sequence_id, highest.get(key, 0))
        events = [_events.span_added(*key, number, now) for key, number in highest.items()]
        await self._all_applied(events)
        return await self._keep_spans(spans, encoded)

    async def get_many_span_sequence_ids(self, rollout_attempt_ids: Sequence[tuple[str, str]]) -> list[int]:
        named = checked_attempts("rollout_attempt_ids", rollout_attempt_ids)
        now = self._clock.now_unix_nano()
        counts = Counter(rollout_id for rollout_id, _ in named)
        events = [_events.numbers_taken(rollout_id, count, now) for rollout_id, count in counts.items()]
        states = await self._all_applied(events)
        last = {state.rollout.rollout_id: state.span_sequence for state in states}
        numbers: list[int] = []
        for rollout_id, _ in named:
            numbers.append(last[rollout_id] - counts[rollout_id] + 1)
            counts[rollout_id] -= 1
        return numbers

    # --- resources

    async def add_resources(self, resources: NamedResources) -> ResourcesUpdate:
        resources_id = f"rs-{new_id('resources', 12)}"
        known = await self.get_resources_by_id(resources_id)
        return known or await self.update_resources(resources_id, resources)  # known: made before, its answer lost

    async def update_resources(self, resources_id: str, resources: NamedResources) -> ResourcesUpdate:
        check_id("resources_id", resources_id)
        now = self._clock.now_unix_nano()
        named = {name: _resource_json(name, resource) for name, resource in checked_resources(resources).items()}
        _check_size(named, self._limits.resources_bytes_max)
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

        return _shapes.resources_update(await self._keep_resources(resources_id, next_version))

    async def _latest_resources_id(self) -> str | None:
        latest = await self.get_latest_resources()
        return None if latest is None else latest.resources_id

    # --- for implementations

    async def _applied(self, event: RolloutEvent) -> RolloutState:
        """The state after an event that was applied or ignored.

        Raises:
            NotFoundError: the rollout or attempt does not exist.
            StoreError: the event was refused.
        """
        state = await self._judged(event)
        _raise_refusal(state)
        return state

    async def _all_applied(self, events: Sequence[RolloutEvent]) -> list[RolloutState]:
        """The states after events of which each was applied or ignored; raises as :meth:`_applied`.

        What can be told without the rollouts is checked for all before any is written. What only the life cycle can
        tell (an attempt that does not exist) concerns one event: the others hold though this raises.
        """
        for event in events:
            if broken := broken_id(event):
                raise StoreError(broken)
        states = await self._judge_all(events)
        for state in states:
            _raise_refusal(state)
        return states

    async def _judged(self, event: RolloutEvent) -> RolloutState:
        """The state after an event, whatever the verdict.

        Raises:
            StoreError: no state can carry the event's ids; it was not written.
        """
        if broken := broken_id(event):
            raise StoreError(broken)
        return await self._judge(event)

    async def _handed_out(self, state: RolloutState, attempt: AttemptState, *, dequeued: bool) -> AttemptedRollout:
        """An attempt on its way to the worker that asked for it."""
        if attempt.worker_id:
            now = self._clock.now_unix_nano()
            change = WorkerChange.of_attempt(state.rollout.rollout_id, attempt, now, dequeued=dequeued)
            await self._keep_worker(attempt.worker_id, change)
        return _shapes.attempted_rollout(state, attempt)


def _raise_refusal(state: RolloutState) -> None:
    """Raise what a verdict of ``not_found`` or ``refused`` means; any other is fine."""
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
