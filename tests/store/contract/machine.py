"""Random calls on a store, each compared with the reference."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from lightstream.schemas.records import WorkerHeartbeat, WorkerStatus
from lightstream.schemas.types import (
    UNSET,
    Assembly,
    EnqueueRolloutRequest,
    PromptTemplate,
    RolloutConfig,
)

from ..support import reached
from .caller import BEYOND, Caller
from .compare import same_attempt, same_rollout, same_worker

PLACES = st.integers(0, BEYOND)
"""Which of those there are."""

WORKERS = st.sampled_from([None, "w0", "w1"])
VALUES = st.sampled_from([{}, {"k": 1}, {"k": [2, "é"]}])
RUNS = st.sampled_from([None, "a", "b"])
ASKED_RUNS = st.sampled_from(["*", "*", "", "a", "b"])
ASSEMBLIES = st.sampled_from([None, Assembly(credit="discounted:0.5"), Assembly(reward_match="log_order")])
MODES = st.sampled_from([None, "train", "val", "test"])
LOST = st.lists(st.sampled_from(["failed", "timeout", "unresponsive"]), max_size=3, unique=True)
ATTEMPT_STATUSES = st.sampled_from(["preparing", "running", "succeeded", "failed", "timeout", "unresponsive"])
ROLLOUT_STATUSES = st.sampled_from(["queuing", "requeuing", "preparing", "running", "succeeded", "failed", "cancelled"])
RETRIES = RolloutConfig(max_attempts=2, retry_condition=["failed", "timeout", "unresponsive"])
CONFIGS = st.just(RETRIES) | st.builds(
    lambda attempts, lost, timeout_s, silence_s, priority: RolloutConfig(
        max_attempts=attempts,
        retry_condition=lost,
        timeout_seconds=timeout_s,
        unresponsive_seconds=silence_s,
        priority=priority,
    ),
    st.integers(1, 3),
    LOST,
    st.sampled_from([None, 30.0]),
    st.sampled_from([None, 10.0]),
    st.sampled_from([0, 1, -1]),
)


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """An argument that may be left out."""
    return st.just(UNSET) | values


class ContractMachine(Caller):
    """Every call of the interface. Subclasses say which store."""

    @initialize(place=st.sampled_from([0, 1]))
    def begin(self, place: int) -> None:
        """A rollout that goes on, and one that waits, so that the first calls are about something."""
        self.start_rollout(False, 0, "w0", RETRIES, {})
        self.enqueue_many(place + 1, RETRIES, None)

    @rule(new=st.booleans(), place=PLACES, config=CONFIGS, mode=MODES, values=VALUES)
    def enqueue(self, new: bool, place: int, config: RolloutConfig, mode: Any, values: Any) -> None:
        """A rollout of a new id, or one that exists already."""
        rollout_id = self.new_id() if new else self.rollout_at(place, or_new=True)
        config, known = self.config(config), rollout_id in self.reference.rollouts
        call = self.store.enqueue_rollout(values, mode, None, config, values, rollout_id=rollout_id)
        shown = self.run(call)
        expected = self.reference.enqueue(rollout_id, config, input=values, mode=mode, metadata=values)
        self.touched.add(rollout_id)
        if not known:
            same_rollout(shown, expected, times=self.clock_in_hand, with_attempt=False)

    @rule(count=st.integers(1, 3), config=CONFIGS, run_id=RUNS, assembly=ASSEMBLIES)
    def enqueue_many(
        self, count: int, config: RolloutConfig, run_id: str | None, assembly: Assembly | None = None
    ) -> None:
        config = self.config(config)
        ids = [self.new_id() for _ in range(count)]
        of_all: dict[str, Any] = {"resources_id": "named", "run_id": run_id, "assembly": assembly}
        requests = [
            EnqueueRolloutRequest(input=n, rollout_id=rollout_id, config=config, **of_all)
            for n, rollout_id in enumerate(ids)
        ]
        shown = self.run(self.store.enqueue_many_rollouts(requests))
        for n, rollout in enumerate(shown):
            expected = self.reference.enqueue(ids[n], config, input=n, mode=None, metadata={}, **of_all)
            same_rollout(rollout, expected, times=self.clock_in_hand)
        assert len(shown) == count
        self.touched.update(ids)

    @rule(again=st.booleans(), place=PLACES, worker=WORKERS, config=CONFIGS, values=VALUES)
    def start_rollout(self, again: bool, place: int, worker: str | None, config: RolloutConfig, values: Any) -> None:
        rollout_id = self.rollout_at(place, or_new=True) if again else self.new_id()
        config, worker = self.config(config), self.named(worker)
        call = self.store.start_rollout(values, "val", None, config, values, worker, rollout_id=rollout_id)
        self.handed_out(
            call,
            lambda attempt_id: self.reference.start_rollout(
                rollout_id, attempt_id, worker, config, input=values, mode="val", metadata=values
            ),
            worker,
        )

    @rule(worker=WORKERS, run_id=ASKED_RUNS)
    def dequeue(self, worker: str | None, run_id: str) -> None:
        worker = self.named(worker)
        self.dequeued(self.run(self.store.dequeue_rollout(worker, run_id=run_id)), worker, run_id)

    @rule(limit=st.integers(0, 3), worker=WORKERS, run_id=ASKED_RUNS)
    def dequeue_many(self, limit: int, worker: str | None, run_id: str) -> None:
        worker = self.named(worker)
        taken = self.run(self.store.dequeue_many_rollouts(limit=limit, worker_id=worker, run_id=run_id))
        assert len(taken) <= limit
        for rollout in taken:
            self.dequeued(rollout, worker, run_id)
        if len(taken) < limit:
            self.dequeued(None, None if taken else worker, run_id)  # who got some did not find nothing

    @rule(place=PLACES, worker=WORKERS)
    def start_attempt(self, place: int, worker: str | None) -> None:
        rollout_id, worker = self.rollout_at(place), self.named(worker)
        self.handed_out(
            self.store.start_attempt(rollout_id, worker),
            lambda attempt_id: self.reference.start_attempt(rollout_id, attempt_id, worker),
            worker,
        )

    @rule(
        place=PLACES,
        which=PLACES,
        status=maybe(ATTEMPT_STATUSES),
        worker=maybe(st.sampled_from(["w0", "w1"])),
        heard_ago_s=maybe(st.sampled_from([-100.0, 0.0, 5.5, 20.5])),
        metadata=maybe(st.none() | VALUES),
        error=st.sampled_from([(None, None), ("Oops", "it broke")]),
    )
    def update_attempt(
        self, place: int, which: int, status: Any, worker: Any, heard_ago_s: Any, metadata: Any, error: tuple[Any, Any]
    ) -> None:
        rollout_id = self.rollout_at(place)
        heard = heard_ago_s if heard_ago_s is UNSET else self.now_s() - heard_ago_s
        attempt_id = self.attempt_at(rollout_id, which)
        worker = worker if worker is UNSET else self.named(worker)
        error_type, error_message = error if status == "failed" else (None, None)
        call = self.store.update_attempt(
            rollout_id, attempt_id, status, worker, heard, metadata, error_type=error_type, error_message=error_message
        )
        answer = self.both(
            call,
            lambda _: self.reference.update_attempt(
                rollout_id,
                attempt_id,
                status,
                error_type,
                error_message,
                worker_id=worker,
                last_heartbeat=heard,
                metadata=metadata,
            ),
        )
        if answer is not None:
            shown, known = answer
            same_attempt(shown, known, times=self.clock_in_hand)
            self.workers.said(rollout_id, known, about_work=status is not UNSET or worker is not UNSET)

    @rule(
        place=PLACES,
        status=maybe(ROLLOUT_STATUSES),
        config=maybe(CONFIGS),
        mode=maybe(MODES),
        values=maybe(st.none() | VALUES),
        resources=maybe(st.sampled_from([None, "named"])),
    )
    def update_rollout(self, place: int, status: Any, config: Any, mode: Any, values: Any, resources: Any) -> None:
        rollout_id = self.rollout_at(place)
        config = config if config is UNSET else self.config(config)
        call = self.store.update_rollout(
            rollout_id, input=values, mode=mode, resources_id=resources, status=status, config=config,
            metadata=values,
        )  # fmt: skip
        with_charge = self.charges()
        answer = self.both(
            call,
            lambda _: self.reference.update_rollout(
                rollout_id, status, config, input=values, mode=mode, resources_id=resources, metadata=values
            ),
        )
        self.workers.lost(with_charge - self.charges())
        if answer is not None:
            same_rollout(*answer, times=self.clock_in_hand)

    @rule(place=PLACES, reason=st.sampled_from(["", "enough"]))
    def cancel(self, place: int, reason: str) -> None:
        rollout_id, with_charge = self.rollout_at(place), self.charges()
        answer = self.both(
            self.store.cancel_rollout(rollout_id, reason), lambda _: self.reference.cancel(rollout_id, reason)
        )
        self.workers.lost(with_charge - self.charges())
        if answer is not None:
            same_rollout(*answer, times=self.clock_in_hand)

    @rule(worker=st.sampled_from(["w0", "w1"]), places=st.lists(st.tuples(PLACES, PLACES), max_size=3))
    def heartbeat(self, worker: str, places: list[tuple[int, int]]) -> None:
        """Of attempts that exist and of others, which are passed over."""
        ids = [(rollout_id := self.rollout_at(place), self.attempt_at(rollout_id, which)) for place, which in places]
        told = WorkerHeartbeat(
            worker_id=self.prefix + worker,
            kind="runner",
            status=WorkerStatus.BUSY if ids else WorkerStatus.IDLE,
            rollout_ids=[rollout_id for rollout_id, _ in ids],
            heartbeat_unix_nano=self.clock.now_unix_nano(),
        )
        self.run(self.store.heartbeat(told, ids))
        for rollout_id, attempt_id in ids:
            self.reference.heartbeat(rollout_id, attempt_id)
            self.touched.add(rollout_id)
        for rollout_id in self.touched & self.reference.rollouts.keys() if not self.clock_in_hand else ():
            # A heartbeat is durable, but nobody waits until it is folded.
            self.run(reached(self.store, rollout_id, self.reference.rollouts[rollout_id].status))
        self.workers.reported(told.worker_id, "busy" if ids else "idle", told.rollout_ids)

    @rule(spans=st.lists(st.tuples(PLACES, PLACES, st.integers(0, 3), st.integers(1, 4)), max_size=3))
    def add_spans(self, spans: list[tuple[int, int, int, int]]) -> None:
        made = [self.span(*numbers) for numbers in spans]
        if not self.clock_in_hand:
            made = made[:1]  # of a batch that is refused, when the others' attempts are heard of is open
        answer = self.both(self.store.add_many_spans(made), lambda _: self.reference.add_spans(made))
        assert answer is None or list(answer[0]) == answer[1]
        self.touched.update(span.rollout_id for span in made)

    @rule(places=st.lists(PLACES, max_size=3))
    def take_numbers(self, places: list[int]) -> None:
        ids = [self.rollout_at(place) for place in (places if self.clock_in_hand else places[:1])]  # as with spans
        call = self.store.get_many_span_sequence_ids([(rollout_id, "any") for rollout_id in ids])
        answer = self.both(call, lambda _: self.reference.next_numbers(ids))
        assert answer is None or list(answer[0]) == answer[1]

    @rule(known=st.booleans(), template=st.sampled_from(["{x}", "{y}"]))
    def store_resources(self, known: bool, template: str) -> None:
        resources: Any = {"prompt": PromptTemplate(template=template)}
        named = next(reversed(self.reference.resources), None) if known else None
        if named is None:
            update = self.run(self.store.add_resources(resources))
        else:
            update = self.run(self.store.update_resources(named, resources))
        version = self.reference.store_resources(update.resources_id, resources)
        assert (update.version, update.resources, named or update.resources_id) == (
            version, resources, update.resources_id,
        )  # fmt: skip
        assert self.run(self.store.get_latest_resources()) == update

    @rule(worker=st.sampled_from(["w0", "w1"]), stats=maybe(VALUES))
    def update_worker(self, worker: str, stats: Any) -> None:
        self.fire_due()
        worker_id = self.prefix + worker
        shown = self.run(self.store.update_worker(worker_id, stats))
        self.workers.alive(worker_id, None if stats is UNSET else stats)
        same_worker(shown, worker_id, self.workers.as_it_stands(worker_id, self.reference.rollouts))

    @rule(seconds=st.sampled_from([1, 9, 11, 31, 61, 601]))
    def wait(self, seconds: int) -> None:
        """Time passes."""
        if self.clock_in_hand:
            self.clock.advance(seconds)
            self.fire_due()

    # --- questions

    @rule(
        statuses=st.none() | st.lists(ROLLOUT_STATUSES, max_size=3),
        sort=st.sampled_from([None, "rollout_id"]),
        descending=st.booleans(),
        limit=st.integers(-1, 3),
        offset=st.integers(0, 2),
    )
    def query(self, statuses: Any, sort: str | None, descending: bool, limit: int, offset: int) -> None:
        self.fire_due()
        page = self.run(
            self.store.query_rollouts(
                status_in=statuses, rollout_id_prefix=self.prefix, sort_by=sort,
                sort_order="desc" if descending else "asc", limit=limit, offset=offset,
            )
        )  # fmt: skip
        found = [r for r in self.reference.rollouts.values() if statuses is None or r.status in statuses]
        if sort is not None:
            found.sort(key=lambda rollout: rollout.rollout_id, reverse=descending)
        wanted = found[offset:][: None if limit < 0 else limit]
        assert [rollout.rollout_id for rollout in page] == [rollout.rollout_id for rollout in wanted]
        assert page.total == len(found)
        for shown, known in zip(page, wanted, strict=True):
            same_rollout(shown, known, times=self.clock_in_hand)

    @rule(places=st.lists(PLACES, max_size=4, unique=True), which=PLACES)
    def ask(self, places: list[int], which: int) -> None:
        """Who is over, for an attempt's spans, and for all workers."""
        self.fire_due()
        ids = list(dict.fromkeys(self.rollout_at(place) for place in places))
        shown = self.run(self.store.wait_for_rollouts(rollout_ids=ids, timeout=0))
        over = [self.reference.rollouts[i] for i in ids if i in self.reference.rollouts]
        assert [rollout.rollout_id for rollout in shown] == [known.rollout_id for known in over if known.over]
        for rollout_id in ids[:1]:
            self._ask_for_spans(rollout_id, self.attempt_at(rollout_id, which))
        for worker_id in self.workers:
            shown_worker = self.run(self.store.get_worker_by_id(worker_id))
            same_worker(shown_worker, worker_id, self.workers.as_it_stands(worker_id, self.reference.rollouts))

    def _ask_for_spans(self, rollout_id: str, attempt_id: str) -> None:
        shown = self.run(self.store.query_spans(rollout_id, attempt_id))
        known = self.reference.rollouts.get(rollout_id)
        if attempt_id == "latest" and known is not None and known.attempts:
            attempt_id = known.attempts[-1].attempt_id
        spans = [] if known is None else [span for span in known.spans.values() if span.attempt_id == attempt_id]
        assert sorted(shown, key=lambda span: span.span_id) == sorted(spans, key=lambda span: span.span_id)
        numbers = [span.sequence_id for span in shown]
        assert numbers == sorted(numbers)

    @invariant()
    def what_was_touched_is_as_it_is_known(self) -> None:
        self.fire_due()
        for rollout_id in sorted(self.reference.rollouts if self.clock_in_hand else self.touched):
            shown = self.run(self.store.get_rollout_by_id(rollout_id))
            known = self.reference.rollouts.get(rollout_id)
            assert (shown is None) == (known is None), f"{rollout_id}: {shown}, not {known}"
            if shown is None or known is None:
                continue
            same_rollout(shown, known, times=self.clock_in_hand)
            attempts = self.run(self.store.query_attempts(rollout_id))
            assert len(attempts) == len(known.attempts)
            for attempt, its in zip(attempts, known.attempts, strict=True):
                same_attempt(attempt, its, times=self.clock_in_hand)
        self.touched.clear()
