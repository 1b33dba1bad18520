"""Calls a store and the reference alike, and draws what calls are about."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, TypeVar

from hypothesis.stateful import RuleBasedStateMachine

from lightstream.runtime.clock import ManualClock
from lightstream.schemas.errors import NotFoundError, StoreError
from lightstream.schemas.interfaces import LightningStore
from lightstream.schemas.types import AttemptedRollout, RolloutConfig, Span

from ..support import bare_span
from .compare import same_rollout
from .reference import KnownRollout, NotFound, Reference, Refused
from .workers import KnownWorkers

T = TypeVar("T")
K = TypeVar("K")

NOWHERE = "nonexistent"
BEYOND = 5
"""In place of an index: none of those there are."""

MICROSECOND_S = 1e-6
LONG_S = 3600.0
"""Deadlines where the clock is not in our hand: longer than any test."""


class Caller(RuleBasedStateMachine):
    """A store, what must be true of it, and a clock.

    Attributes:
        clock_in_hand: whether the store goes by our clock. If not, deadlines are far and times are not compared.
    """

    clock_in_hand: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.prefix = f"{uuid.uuid4().hex[:8]}-"
        self.reference = Reference()
        self.workers = KnownWorkers()
        self.touched: set[str] = set()
        self.made = 0
        self.store = self.open_store()

    def open_store(self) -> LightningStore:
        """A started store."""
        raise NotImplementedError

    def close_store(self) -> None:
        """Be done with it."""
        self.run(self.store.close())

    def teardown(self) -> None:
        self.close_store()
        self.loop.close()

    # --- what a call is about

    def new_id(self) -> str:
        self.made += 1
        return f"{self.prefix}{self.made}"

    def rollout_at(self, place: int, *, or_new: bool = False) -> str:
        """One of the rollouts there are, those that go on first, or (``BEYOND``) one that does not exist."""
        known = self.reference.rollouts
        ids = sorted(known, key=lambda rollout_id: known[rollout_id].over)
        unknown = self.new_id() if or_new else NOWHERE
        rollout_id = unknown if place == BEYOND or not ids else ids[place % len(ids)]
        self.touched.add(rollout_id)
        return rollout_id

    def attempt_at(self, rollout_id: str, which: int) -> str:
        """``latest``, one of the rollout's attempts, the last first, or (``BEYOND``) one that does not exist."""
        known = self.reference.rollouts.get(rollout_id)
        ids = ["latest", *(attempt.attempt_id for attempt in reversed(known.attempts if known else []))]
        return NOWHERE if which == BEYOND else ids[which % len(ids)]

    def span(self, place: int, which: int, number: int, sequence_id: int) -> Span:
        rollout_id = self.rollout_at(place)
        attempt_id = self.attempt_at(rollout_id, which)
        known = self.reference.rollouts.get(rollout_id)
        if attempt_id == "latest":
            attempt_id = known.attempts[-1].attempt_id if known and known.attempts else NOWHERE
        return bare_span(rollout_id, attempt_id, f"s{number}", sequence_id, span_id=f"{number:016x}", trace_id="0" * 32)

    def span_of_latest(self, rollout_id: str) -> Span:
        known = self.reference.rollouts.get(rollout_id)
        attempt_id = known.attempts[-1].attempt_id if known and known.attempts else NOWHERE
        return bare_span(rollout_id, attempt_id, "latest", 1, span_id="f" * 16, trace_id="0" * 32)

    def named(self, worker: str | None) -> str | None:
        return None if worker is None else self.prefix + worker

    def config(self, drawn: RolloutConfig) -> RolloutConfig:
        if self.clock_in_hand:
            return drawn
        return drawn.model_copy(update={"timeout_seconds": LONG_S, "unresponsive_seconds": LONG_S})

    def now_s(self) -> float:
        """The store's time."""
        return self.clock.now_unix_nano() / 10**9 if self.clock_in_hand else time.time()

    # --- calls

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """What the store says, after the clock has had its say. No two calls come at the same time."""
        self.clock.advance(MICROSECOND_S)
        self.fire_due()
        return self.loop.run_until_complete(call)

    def both(self, call: Coroutine[Any, Any, T], expected: Callable[[T | None], K]) -> tuple[T, K] | None:
        """What the store says, and what the reference does, which sees the store's answer; ``None``: both refuse."""
        shown, known = None, None
        error: StoreError | None = None
        refusal: Refused | None = None
        try:
            shown = self.run(call)
        except StoreError as refused:
            error = refused
        try:
            known = expected(shown)
        except Refused as refused:
            refusal = refused
        assert (error is None) == (refusal is None), f"the store says {error or shown!r}, but {refusal or 'nothing'}"
        if error is not None or refusal is not None:
            assert isinstance(error, NotFoundError) == isinstance(refusal, NotFound), f"{error!r}, not {refusal!r}"
            assert not isinstance(refusal, NotFound) or str(error) == str(refusal)
            return None
        assert shown is not None
        assert known is not None
        return shown, known

    def handed_out(
        self,
        call: Coroutine[Any, Any, AttemptedRollout],
        expected: Callable[[str], KnownRollout],
        worker_id: str | None,
    ) -> None:
        """A call that makes an attempt past the queue."""
        before = self.charges()
        answer = self.both(call, lambda made: expected(NOWHERE if made is None else made.attempt.attempt_id))
        if answer is not None:
            self._has(*answer, worker_id, before)

    def dequeued(self, shown: AttemptedRollout | None, worker_id: str | None, run_id: str) -> None:
        """The answer of the queue."""
        expected = self.reference.next_in_turn(run_id)
        assert (shown and shown.rollout_id) == (expected and expected.rollout_id)
        if shown is None:
            self.workers.found_nothing(worker_id)
            return
        before = self.charges()
        known = self.reference.dequeue(shown.rollout_id, shown.attempt.attempt_id, worker_id)
        self._has(shown, known, worker_id, before)

    def _has(self, shown: AttemptedRollout, known: KnownRollout, worker_id: str | None, before: set[str]) -> None:
        same_rollout(shown, known, times=self.clock_in_hand)
        self.workers.lost(before - self.charges())
        self.workers.has(worker_id, known.rollout_id, known.attempts[-1])
        self.touched.add(known.rollout_id)

    def charges(self) -> set[str]:
        """The attempts that are in charge of their rollouts."""
        return {attempt.attempt_id for rollout in self.reference.rollouts.values() if (attempt := rollout.in_charge)}

    def fire_due(self) -> None:
        """The time of the reference is the clock's."""
        if self.clock_in_hand:
            before = self.charges()
            self.reference.now = self.clock.now_unix_nano() / 10**9
            self.reference.fire_due()
            self.workers.lost(before - self.charges())
