"""The store in memory: for tests, for one process that needs no durability, and as the contract's plainest reading."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import count
from typing import TypeAlias

from lightstream.runtime.clock import NANOS_PER_SECOND, Clock, SystemClock
from lightstream.runtime.loop_thread import LoopThread
from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.schemas.records import (
    ANY_RUN,
    ResourcesRecord,
    RolloutEvent,
    RolloutState,
    WorkerHeartbeat,
)
from lightstream.schemas.types import LightningStoreStatistics, Span
from lightstream.stream_processors.core.lifecycle import SIGNS_OF_LIFE, Deadlines, Limits, WaitingRollouts, fold

from . import events as events_of
from .any_loop import AnyLoopStore
from .condition import Condition
from .endings import Endings
from .log import Log, NextVersion, NextWorker
from .queries import Query, exact_value_of_state, value_of_state
from .store import Store
from .validation import check_size

Follower: TypeAlias = Callable[[RolloutEvent | RolloutState | Span | ResourcesRecord | WorkerHeartbeat], None]
"""Is given what a store in memory keeps, one by one. It must return at once, and change nothing."""

LOOK_INTERVAL_S_MAX = 1.0
"""Between looks at the deadlines, at most: a clock may jump."""


class InMemoryLightningStore(AnyLoopStore):
    """A store that forgets all when its process ends.

    The life cycle is the one that runs on Kafka: the same events, folded by the same code, from a log in memory.
    Nothing is evicted: memory grows with what is stored.

    Args:
        limits: deadlines of rollouts that name none, and the largest rollout.
        clock: of everything that has a time; deadlines fire by it.
    """

    def __init__(self, *, limits: Limits | None = None, clock: Clock | None = None) -> None:
        clock = clock or SystemClock()
        self._log = self._make_log(limits or Limits(), clock)
        super().__init__(Store(self._log, clock), LoopThread("lightstream-memory-store", "the store"))

    def history(self) -> list[RolloutEvent]:
        """Every event since the beginning, in order."""
        return self._log.history()

    def follow(self, follower: Follower) -> None:
        """Give ``follower`` all that is kept, and then, in the store's thread, whatever is new. Blocks.

        What was replaced before that (states of rollouts, heartbeats, versions of resources) is given as it is now.
        """
        self._loop.run(partial(self._log.follow, follower))

    def unfollow(self, follower: Follower) -> None:
        """Give ``follower`` nothing more."""
        self._log.unfollow(follower)

    def _make_log(self, limits: Limits, clock: Clock) -> MemoryLog:
        return MemoryLog(limits, clock)


class MemoryLog(Log):
    """Events, the states they make, the queue, and everything else in dictionaries.

    What is due by the clock is folded before anything else is done or told, and by a timer.
    """

    def __init__(self, limits: Limits, clock: Clock) -> None:
        self.limits = limits
        self._clock = clock
        self._events: list[RolloutEvent] = []
        self._states: dict[str, RolloutState] = {}
        self._queue = WaitingRollouts()
        self._deadlines = Deadlines(limits)
        self._timer: asyncio.TimerHandle | None = None
        self._endings = Endings()
        self._takers: dict[str, deque[tuple[int, asyncio.Future[None]]]] = {}
        self._tickets = count()
        self._spans: dict[str, dict[tuple[str, str], Span]] = {}
        self._span_count = 0
        self._resources: dict[str, ResourcesRecord] = {}
        self._latest_resources: ResourcesRecord | None = None
        self._resources_changed = Condition()
        self._workers: dict[str, WorkerHeartbeat] = {}
        self._followers: list[Follower] = []  # replaced as a whole, so that any thread may
        self._closed = False
        self._started_unix_nano = clock.now_unix_nano()

    async def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        takers, self._takers = self._takers, {}
        for _, taker in (taker for of_run in takers.values() for taker in of_run):
            taker.set_exception(ServiceUnavailableError("the store was closed."))
        self._endings.close()
        self._resources_changed.notify()

    async def statistics(self) -> LightningStoreStatistics:
        self.fire_due()
        return LightningStoreStatistics(
            name=InMemoryLightningStore.__name__,
            total_rollouts=len(self._states),
            total_attempts=sum(len(state.attempts) for state in self._states.values()),
            total_spans=self._span_count,
            total_resources=len(self._resources),
            total_workers=len(self._workers),
            uptime=(self._clock.now_unix_nano() - self._started_unix_nano) / NANOS_PER_SECOND,
        )

    def history(self) -> list[RolloutEvent]:
        """The whole log. Folding it again gives the same states."""
        return list(self._events)

    async def follow(self, follower: Follower) -> None:
        """As the store's."""
        for event in self._events:
            follower(event)
        for state in self._states.values():
            follower(state)
        for spans in self._spans.values():
            for span in spans.values():
                follower(span)
        for resources in self._resources.values():
            follower(resources)
        for worker in self._workers.values():
            follower(worker)
        self._followers = [*self._followers, follower]

    def unfollow(self, follower: Follower) -> None:
        """As the store's. For any thread."""
        self._followers = [other for other in self._followers if other != follower]

    # --- rollouts

    async def submit(self, events: Sequence[RolloutEvent]) -> list[RolloutState]:
        states: list[RolloutState] = []
        for event in events:
            self.fire_due()
            state = self._fold(event)
            if state is None:
                raise AssertionError("only heartbeats have no result")
            states.append(state)
        return states

    async def lease(self, count: int, worker_id: str | None, timeout_s: float, run_id: str) -> list[RolloutState]:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        leased: list[RolloutState] = []
        while len(leased) < count:
            state = self._begin_next(worker_id, run_id)
            if state is not None:
                leased.append(state)
                continue
            left_s = deadline_s - loop.time()
            if leased or left_s <= 0:
                break
            await self._task_comes(left_s, run_id)  # and the queue is looked at again, even if the time is over
        return leased

    async def wait_ended(
        self,
        rollout_ids: Sequence[str],
        needed: int,
        timeout: float | None,  # noqa: ASYNC109  # part of the answer, not an error
    ) -> dict[str, RolloutState]:
        states = await self.states_of(rollout_ids)
        with self._endings.expect(rollout_ids, needed) as waiting:
            waiting.add({rollout_id: state for rollout_id, state in states.items() if state.status.is_terminal})
            waiting.forget(set(rollout_ids) - states.keys())
            if not self._closed:
                await waiting.until_enough(timeout)
            return waiting.ended

    async def states_of(self, rollout_ids: Sequence[str]) -> dict[str, RolloutState]:
        self.fire_due()
        return {rollout_id: self._states[rollout_id] for rollout_id in rollout_ids if rollout_id in self._states}

    async def page_of_rollouts(self, query: Query) -> tuple[list[RolloutState], int]:
        self.fire_due()
        page = query.page(self._states.values(), value_of_state, exact_value_of_state)
        return list(page.items), page.total

    def fire_due(self) -> None:
        """Write the events that the passing of time has made."""
        for event in self._deadlines.due(self._clock.now_unix_nano()):
            self._fold(event)

    def _begin_next(self, worker_id: str | None, run_id: str) -> RolloutState | None:
        """Begin an attempt of the rollout of that run whose turn it is."""
        self.fire_due()
        rollout_id = self._queue.first(run_id)
        if rollout_id is None:
            return None
        sequence, now = len(self._states[rollout_id].attempts) + 1, self._clock.now_unix_nano()
        return self._fold(events_of.attempt_started(rollout_id, sequence, worker_id, now))

    def _fold(self, event: RolloutEvent) -> RolloutState | None:
        """Append an event and fold it; the state with its result, ``None`` for a heartbeat that has none."""
        self._events.append(event)
        self._publish(event)
        transition = fold(self._states.get(event.rollout_id), event, len(self._events) - 1, self.limits)
        now = self._clock.now_unix_nano()
        if transition.state is not None and transition.record is not None:
            self._states[event.rollout_id] = transition.state
            self._publish(transition.record)
            longer = self._queue.update(transition.state)
            if longer is not None:
                self._wake_taker((longer, ANY_RUN))
            self._deadlines.update(transition.state, now)
        if transition.action in SIGNS_OF_LIFE:
            self._deadlines.heard(event, now)
        self._set_timer()
        if transition.state is not None and transition.state.status.is_terminal:
            self._endings.ended(transition.state)
        return transition.record

    def _publish(self, record: RolloutEvent | RolloutState | Span | ResourcesRecord | WorkerHeartbeat) -> None:
        for follower in self._followers:
            follower(record)

    def _set_timer(self) -> None:
        due_unix_nano = self._deadlines.next_unix_nano()
        if due_unix_nano is None or self._closed:
            return
        loop = asyncio.get_running_loop()
        wait_s = (due_unix_nano - self._clock.now_unix_nano()) / NANOS_PER_SECOND
        at_s = loop.time() + min(LOOK_INTERVAL_S_MAX, max(0.001, wait_s))
        if self._timer is not None:
            if self._timer.when() <= at_s:
                return
            self._timer.cancel()
        self._timer = loop.call_at(at_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.fire_due()
        self._set_timer()

    async def _task_comes(self, timeout_s: float, run_id: str) -> None:
        """Wait until something may have been put in the queue, or the time is over.

        Raises:
            ServiceUnavailableError: this was closed.
        """
        if self._closed:
            raise ServiceUnavailableError("the store was closed.")
        taker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._takers.setdefault(run_id, deque()).append((next(self._tickets), taker))
        looks = False
        try:
            await asyncio.wait([taker], timeout=timeout_s)
            if taker.done():
                looks = True
                taker.result()
        finally:
            if not looks:
                self._leave(taker, run_id)

    def _leave(self, taker: asyncio.Future[None], run_id: str) -> None:
        """Its owner waits no more; what it was told, the next one is told."""
        if not taker.done():
            remaining = deque(known for known in self._takers.pop(run_id) if known[1] is not taker)
            if remaining:
                self._takers[run_id] = remaining
        elif taker.exception() is None:
            self._wake_taker(list(self._takers) if run_id == ANY_RUN else (run_id, ANY_RUN))

    def _wake_taker(self, run_ids: Iterable[str]) -> None:
        """Tell the taker that has waited longest for one of these runs and may find something."""
        found = [run_id for run_id in run_ids if self._takers.get(run_id) and self._queue.length(run_id)]
        if found:
            first = min(found, key=lambda run_id: self._takers[run_id][0][0])
            _, taker = self._takers[first].popleft()
            if not self._takers[first]:
                del self._takers[first]
            taker.set_result(None)

    # --- spans

    def encoded_spans(self, spans: Sequence[Span]) -> list[bytes]:
        for span in spans:
            check_size(f"span {span.span_id!r}", span.model_dump_json(fallback=str), self.limits.record_bytes_max)
        return []

    async def append_spans(self, spans: Sequence[Span], encoded: Sequence[bytes]) -> list[Span]:
        new: list[Span] = []
        for span in spans:
            kept = self._spans.setdefault(span.rollout_id, {})
            if kept.setdefault((span.attempt_id, span.span_id), own := span.model_copy(deep=True)) is own:
                new.append(span)
                self._publish(own)
        self._span_count += len(new)
        return new

    async def page_of_spans(self, rollout_id: str, attempt_id: str | None, query: Query) -> tuple[list[Span], int]:
        kept = self._spans.get(rollout_id, {}).values()
        page = query.page((span for span in kept if attempt_id in (None, span.attempt_id)), getattr)
        return [span.model_copy(deep=True) for span in page], page.total

    # --- resources

    async def put_resources(self, resources_id: str, make: NextVersion) -> ResourcesRecord:
        known = self._resources.get(resources_id)
        record = make(known)
        if record is not known:
            self._resources[resources_id] = self._latest_resources = record
            self._publish(record)
            self._resources_changed.notify()
        return record

    async def find_resources(self, resources_id: str | None, timeout_s: float) -> ResourcesRecord | None:
        await self._resources_changed.wait_for(
            lambda: self._closed or self._resources_now(resources_id) is not None, timeout_s
        )
        return self._resources_now(resources_id)

    def _resources_now(self, resources_id: str | None) -> ResourcesRecord | None:
        return self._latest_resources if resources_id is None else self._resources.get(resources_id)

    async def all_resources(self) -> list[ResourcesRecord]:
        return list(self._resources.values())

    # --- workers

    def worker(self, worker_id: str) -> WorkerHeartbeat | None:
        return self._workers.get(worker_id)

    def workers(self) -> list[WorkerHeartbeat]:
        return list(self._workers.values())

    async def put_worker(self, worker_id: str, change: NextWorker, *, wait: bool = False) -> WorkerHeartbeat:
        record = change(self._workers.get(worker_id))
        check_size(f"worker {worker_id!r}", record.stats_json or "", self.limits.record_bytes_max)
        self._workers[worker_id] = record
        self._publish(record)
        return record

    async def heartbeat(self, worker_id: str, change: NextWorker, events: Sequence[RolloutEvent]) -> None:
        await self.put_worker(worker_id, change)
        for event in events:
            self.fire_due()
            self._fold(event)
