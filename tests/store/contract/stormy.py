"""A store on the pure life cycle whose log is delivered badly: crashes, replays, repeats, other orders."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Sequence

from lightstream.runtime.clock import ManualClock
from lightstream.schemas.records import (
    EventKind,
    RolloutEvent,
    RolloutState,
    TaskRequest,
    VerdictOutcome,
)
from lightstream.store_views.stores.log import NextWorker
from lightstream.store_views.stores.memory import MemoryLog
from lightstream.store_views.stores.queries import Query, value_of_state
from lightstream.store_views.stores.store import Store
from lightstream.stream_processors.core.lifecycle import Limits
from tests.stream_processors.lifecycle.build import Partition

ONCE_FOR_ALL = frozenset(
    {
        EventKind.ENQUEUED,
        EventKind.ROLLOUT_STARTED,
        EventKind.ATTEMPT_ADDED,
        EventKind.TIMED_OUT,
        EventKind.CANCELLED,
    }
)
"""Events that, once applied, change nothing however late they come again. What others say may have been said anew."""

CRASH_CHANCE, REPEAT_CHANCE, LATE_CHANCE = 0.3, 0.3, 0.2
REQUEST_STANDS_NANOS = 60 * 10**9
WRITES_MAX = 6
"""Records that become durable before a crash; a batch seldom writes more."""


class StormyStore(Store):
    """Spans, resources and workers are kept in memory; rollouts by a partition of the life cycle."""

    def __init__(self, clock: ManualClock, chance: random.Random) -> None:
        self.log = StormyLog(clock, chance)
        super().__init__(self.log, clock)


class StormyLog(MemoryLog):
    """Calls made at once share a batch.

    Attributes:
        crashes: how often the life cycle was dropped and restored from what it had written.
    """

    def __init__(self, clock: ManualClock, chance: random.Random) -> None:
        super().__init__(Limits(), clock)
        self.partition = Partition()
        self.partition.clock = clock
        self.partition.crash()  # a life cycle by that clock
        self.crashes = 0
        self._now = clock.now_unix_nano
        self._chance = chance
        self._written: list[RolloutEvent] = []
        self._results: dict[str, RolloutState] = {}
        self._told = 0
        self._ids: dict[str, None] = {}

    async def lease(self, count: int, worker_id: str | None, timeout_s: float, run_id: str) -> list[RolloutState]:
        leased: list[RolloutState] = []
        while len(leased) < count and (begun := self._begin_by_request(worker_id, run_id)) is not None:
            leased.append(begun)
        return leased

    def _begin_by_request(self, worker_id: str | None, run_id: str) -> RolloutState | None:
        self.fire_due()
        request = TaskRequest(
            request_id=uuid.uuid4().hex,
            worker_ids=[worker_id or ""],
            occurred_unix_nano=self._now(),
            stands_nanos=REQUEST_STANDS_NANOS,
            run_id=run_id,
        )
        self._deliver([request])
        return self._results.get(request.request_id)

    async def wait_ended(
        self,
        rollout_ids: Sequence[str],
        needed: int,
        timeout: float | None,  # noqa: ASYNC109  # the log's name
    ) -> dict[str, RolloutState]:
        states = await self.states_of(rollout_ids)
        return {rollout_id: state for rollout_id, state in states.items() if state.status.is_terminal}

    async def heartbeat(self, worker_id: str, change: NextWorker, events: Sequence[RolloutEvent]) -> None:
        self.fire_due()
        self._deliver(events)
        await super().heartbeat(worker_id, change, [])

    def fire_due(self) -> None:
        """Write the events that the passing of time has made. Once written they are durable, as any event."""
        while due := self.partition.lifecycle.due():
            self._deliver(due)

    async def submit(self, events: Sequence[RolloutEvent]) -> list[RolloutState]:
        self.fire_due()
        self._written.extend(events)
        await asyncio.sleep(0)  # whoever writes at once shares the batch
        if self._written:
            batch, self._written = self._written, []
            self._deliver(batch)
        return [self._results[event.event_id] for event in events]

    async def states_of(self, rollout_ids: Sequence[str]) -> dict[str, RolloutState]:
        self.fire_due()
        found = {rollout_id: self.partition.lifecycle.state_of(rollout_id) for rollout_id in rollout_ids}
        return {rollout_id: state for rollout_id, state in found.items() if state is not None}

    async def page_of_rollouts(self, query: Query) -> tuple[list[RolloutState], int]:
        page = query.page((await self.states_of(list(self._ids))).values(), value_of_state)
        return list(page.items), page.total

    def _deliver(self, batch: Sequence[RolloutEvent | TaskRequest]) -> None:
        """Append to the log, in an order and with repeats that the contract does not see, and fold it, with crashes."""
        partition = self.partition
        self._ids |= dict.fromkeys(event.rollout_id for event in batch if isinstance(event, RolloutEvent))
        partition.events.extend(self._shuffled(batch))
        left = len(partition.events) - partition.committed
        may_crash = not any(isinstance(event, RolloutEvent) and _tells_of_silence(event) for event in batch)
        while left and may_crash and self._chance.random() < CRASH_CHANCE:
            partition.process_and_crash(self._chance.randint(1, left), self._chance.randint(0, WRITES_MAX))
            partition.committed = self._chance.randint(0, partition.committed)
            left = len(partition.events) - partition.committed
            self.crashes += 1
        partition.process(left)
        for state in partition.states[self._told :]:
            self._results.setdefault(state.verdict.event_id, state)
        self._told = len(partition.states)

    def _shuffled(self, batch: Sequence[RolloutEvent | TaskRequest]) -> list[RolloutEvent | TaskRequest]:
        """Events about one rollout keep their order, as does what is enqueued; else it is any, and some come twice."""
        by_rollout: dict[str, list[RolloutEvent | TaskRequest]] = {}
        for event in batch:
            if isinstance(event, TaskRequest):
                by_rollout[event.request_id] = [event]
                continue
            again = event.kind is not EventKind.NUMBERS_TAKEN and self._chance.random() < REPEAT_CHANCE
            queued = event.kind is EventKind.ENQUEUED  # by one call: their order is the queue's
            by_rollout.setdefault("the queue" if queued else event.rollout_id, []).extend([event] * (2 if again else 1))
        suspected = {
            event.rollout_id for event in batch if isinstance(event, RolloutEvent) and event.kind is EventKind.SUSPECTED
        }
        # A state that outlives a crash takes the suspicion before it along, and silence is counted from the crash on:
        # the contract leaves that open.
        late = self._of_long_ago() if self._chance.random() < LATE_CHANCE else None
        if late is not None and late.rollout_id not in suspected:
            by_rollout.setdefault(late.rollout_id, []).append(late)
        turns = [key for key, events in by_rollout.items() for _ in events]
        self._chance.shuffle(turns)
        return [by_rollout[key].pop(0) for key in turns]

    def _of_long_ago(self) -> RolloutEvent | None:
        applied = [
            event
            for event in self.partition.events
            if isinstance(event, RolloutEvent)
            and event.kind in ONCE_FOR_ALL
            and self._results[event.event_id].verdict.outcome is VerdictOutcome.APPLIED
        ]
        return self._chance.choice(applied) if applied else None


def _tells_of_silence(event: RolloutEvent) -> bool:
    """After a crash silence is counted from then on; whether such an event lies before it, the contract leaves open."""
    return event.attempt_changes is not None and event.attempt_changes.last_heartbeat_unix_nano is not None
