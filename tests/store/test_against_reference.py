"""Random calls on every store, compared with a reference of the contract."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Coroutine
from typing import Any, ClassVar

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule, run_state_machine_as_test

from lightstream.schemas.interfaces import LightningStore
from lightstream.store_views.stores import InMemoryLightningStore

from .contract.machine import ContractMachine
from .contract.reference import Refused
from .contract.stormy import StormyStore
from .support import cancel_what_is_left

EXAMPLES_ON_KAFKA = int(os.environ.get("LIGHTSTREAM_TEST_EXAMPLES", "4"))
"""Few, as each call takes many milliseconds; ask for more with the variable."""


class InMemory(ContractMachine):
    """The store in memory, its clock in our hand."""

    def open_store(self) -> LightningStore:
        return InMemoryLightningStore(clock=self.clock)


class Stormy(ContractMachine):
    """The life cycle alone, with crashes, replays, repeats and other orders of delivery."""

    store: StormyStore

    def open_store(self) -> LightningStore:
        self.chance = random.Random(0)
        self.crashes = 0
        return StormyStore(self.clock, self.chance)

    @initialize(seed=st.integers(0, 1000))
    def weather(self, seed: int) -> None:
        self.chance.seed(seed)

    @rule(
        calls=st.lists(
            st.tuples(st.integers(0, 4), st.sampled_from(["succeeded", "failed", "running", "span", "cancel"])),
            min_size=2,
            max_size=4,
        )
    )
    def at_once(self, calls: list[tuple[int, str]]) -> None:
        """Calls about different rollouts at the same time: their events share a batch, in any order."""
        about = {self.rollout_at(place): what for place, what in calls}
        spans = {rollout_id: self.span_of_latest(rollout_id) for rollout_id in about}

        def call(rollout_id: str) -> Coroutine[Any, Any, Any]:
            if about[rollout_id] == "cancel":
                return self.store.cancel_rollout(rollout_id)
            if about[rollout_id] == "span":
                return self.store.add_span(spans[rollout_id])
            status: Any = about[rollout_id]
            return self.store.update_attempt(rollout_id, "latest", status)

        async def together() -> list[Any]:
            return await asyncio.gather(*map(call, about), return_exceptions=True)

        answers = dict(zip(about, self.run(together()), strict=True))
        before = self.charges()
        for rollout_id, what in about.items():
            refused = False
            try:
                if what == "cancel":
                    self.reference.cancel(rollout_id, "")
                elif what == "span":
                    self.reference.add_spans([spans[rollout_id]])
                else:
                    known = self.reference.update_attempt(rollout_id, "latest", what)
                    self.workers.said(rollout_id, known, about_work=True)
            except Refused:
                refused = True
            assert isinstance(answers[rollout_id], Exception) == refused, answers[rollout_id]
        self.workers.lost(before - self.charges())

    def fire_due(self) -> None:
        """In both, so that both know of it."""
        self.notice_crashes()
        super().fire_due()
        self.store.log.fire_due()
        self.notice_crashes()

    def notice_crashes(self) -> None:
        """A life cycle that starts again counts silence from then on."""
        if self.store.log.crashes != self.crashes:
            self.crashes = self.store.log.crashes
            for rollout in self.reference.rollouts.values():
                if (attempt := rollout.in_charge) is not None:
                    attempt.heard = self.reference.now

    @invariant()
    def attempts_open_and_close_once(self) -> None:
        """Effects may be repeated, but not contradicted; each end of a rollout has one final record."""
        self.fire_due()
        closings = {
            (record.attempt_id, record.model_dump_json()): record for record in self.store.log.partition.closed()
        }
        times = Counter(name for name, _ in closings if "-none" not in name)  # without an attempt it may end twice
        assert set(times.values()) <= {1}, times
        finals = {record.attempt_id for record in closings.values() if record.final}
        assert finals == {name for rollout in self.reference.rollouts.values() for name in rollout.ends}
        known = {attempt.attempt_id for rollout in self.reference.rollouts.values() for attempt in rollout.attempts}
        assert known <= set(self.store.log.partition.opened())


class OnKafka(ContractMachine):
    """A store that others use too, and whose time is the machine's."""

    clock_in_hand = False
    shared: ClassVar[LightningStore]

    def open_store(self) -> LightningStore:
        """Resources of others may be the latest."""
        latest = self.loop.run_until_complete(self.shared.get_latest_resources())
        self.reference.latest_resources = None if latest is None else latest.resources_id
        return self.shared

    def close_store(self) -> None:
        self.run(cancel_what_is_left(self.store))


def test_on_kafka(kafka_store: LightningStore) -> None:
    asyncio.run(cancel_what_is_left(kafka_store))
    OnKafka.shared = kafka_store
    # Without shrinking: a failure shows its calls, and each call takes many milliseconds.
    phases = [phase for phase in Phase if phase is not Phase.shrink]
    run_state_machine_as_test(
        OnKafka, settings=settings(max_examples=EXAMPLES_ON_KAFKA, stateful_step_count=20, deadline=None, phases=phases)
    )


TestInMemory = InMemory.TestCase
TestInMemory.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
TestStormy = Stormy.TestCase
TestStormy.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
