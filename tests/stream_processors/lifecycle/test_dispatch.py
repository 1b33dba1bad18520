"""Requests for work: who gets what, in which order, and that a crash in the middle of an answer changes nothing."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from lightstream.runtime.clock import ManualClock
from lightstream.schemas.records import ANY_RUN, RolloutConfig, RolloutEvent, RolloutState, TaskRequest
from lightstream.stream_processors.core.lifecycle import LifecyclePartition, QueueEntry
from lightstream.stream_processors.core.lifecycle.queue import CLOCK_ERROR_NANOS_MAX, queue_time
from tests.support.examples import examples

from .build import CODEC, LIMITS, ended, enqueued, restore, silent

NEVER = 2**62


def request(number: int, *workers: str, stands: int = NEVER, run_id: str = ANY_RUN) -> TaskRequest:
    return TaskRequest(
        request_id=f"{number:016d}",
        worker_ids=list(workers),
        occurred_unix_nano=number,
        stands_nanos=stands,
        run_id=run_id,
    )


def at(rollout_id: str, time: int, priority: int = 0, run_id: str = "", **config: Any) -> RolloutEvent:
    event = enqueued(rollout_id, **config)
    assert event.rollout is not None
    settings_ = RolloutConfig.model_validate({**event.rollout.config.model_dump(), "priority": priority})
    spec = event.rollout.model_copy(update={"enqueued_unix_nano": time, "config": settings_, "run_id": run_id})
    return event.model_copy(update={"rollout": spec})


class Log:
    """Events and requests at their offsets, and the states written so far."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.records: list[RolloutEvent | TaskRequest] = []
        self.states: list[RolloutState] = []
        self.partition = LifecyclePartition(LIMITS, self.clock, CODEC)

    def write(self, *records: RolloutEvent | TaskRequest) -> list[tuple[str, str | None]]:
        """Process records; returns who got what by the last."""
        made: list[RolloutState] = []
        for record in records:
            self.records.append(record)
            made = self.process(record, len(self.records) - 1)
            self.states.extend(made)
        return [(state.rollout.rollout_id, state.attempts[-1].worker_id) for state in made if state.attempts]

    def process(self, record: RolloutEvent | TaskRequest, offset: int) -> list[RolloutState]:
        if isinstance(record, TaskRequest):
            starts = self.partition.on_request(record, offset) or []
            return [start.record for start in starts if start.record is not None]
        transition = self.partition.on_event(record, offset)
        return [] if transition is None or transition.record is None else [transition.record]

    def crash(self, durable: int, committed: int) -> None:
        """Keep the first ``durable`` states, and read the log again from ``committed`` on."""
        del self.states[durable:]
        self.partition = LifecyclePartition(LIMITS, self.clock, CODEC)
        restore(self.partition, self.states)
        for offset in range(committed, len(self.records)):
            self.states.extend(self.process(self.records[offset], offset))


def test_the_first_in_turn_goes_to_the_first_who_asks() -> None:
    """In the order of the log, whatever the clocks of those who enqueued said."""
    log = Log()
    assert log.write(at("first", 3), at("second", 1), at("third", 2), request(4, "x", "", "z")) == [
        ("first", "x"),
        ("second", None),
        ("third", "z"),
    ]
    assert log.write(request(5, "x")) == []


def test_no_more_is_handed_out_than_was_asked_for() -> None:
    log = Log()
    assert log.write(at("a", 1), at("b", 2), request(3, "x")) == [("a", "x")]
    assert (log.partition.queue_length(), log.partition.queue_head(8)) == (1, [(0, 1, 1, 2, "b")])
    assert log.write(request(4)) == []


def test_a_run_gets_its_own_rollouts_in_their_order_and_no_others() -> None:
    log = Log()
    log.write(at("a1", 1, run_id="a"), at("none", 2), at("b", 3, run_id="b"), at("a2", 4, run_id="a", priority=1))
    assert log.write(request(5, *"wwww", run_id="a")) == [("a2", "w"), ("a1", "w")]
    assert log.write(request(6, "w", run_id="c")) == []
    assert log.write(request(7, *"ww", run_id="")) == [("none", "w")]
    assert log.write(request(8, *"ww")) == [("b", "w")]


def test_what_has_changed_is_told_run_by_run() -> None:
    log = Log()
    log.write(at("a", 1, run_id="a"), at("b", 2, run_id="b"))
    assert set(log.partition.queues_changed()) == {"a", "b", ANY_RUN}
    log.partition.queue_noted("a")
    log.write(request(3, "w", run_id="b"))
    assert set(log.partition.queues_changed()) == {"b", ANY_RUN}
    assert (log.partition.queue_length("b"), log.partition.queue_length("a"), log.partition.queue_length()) == (0, 1, 1)


def test_priority_comes_before_retries_and_retries_before_age() -> None:
    log = Log()
    retried = at("retried", 9, max_attempts=2, retry_condition=["failed"])
    log.write(retried, request(10, "w"))
    log.write(ended("retried", error="X").model_copy(update={"attempt_id": log.states[-1].attempts[-1].attempt_id}))
    log.write(at("old", 30), at("urgent", 20, priority=1), at("idle", 0, priority=-1), at("new", 1))
    given_out = log.write(request(21, *"wwwww"))
    assert [rollout_id for rollout_id, _ in given_out] == ["urgent", "retried", "old", "new", "idle"]


def test_a_restart_gives_the_same_order() -> None:
    log = Log()
    config: dict[str, Any] = {"max_attempts": 2, "retry_condition": ["failed"]}
    log.write(at("a", 9, **config), at("b", 5, **config), request(10, "w", "w"))
    for rollout_id in ("b", "a"):
        attempt_id = f"{rollout_id}-a1-{10:016d}"
        log.write(ended(rollout_id, error="X").model_copy(update={"attempt_id": attempt_id}))
    log.write(at("c", 7), at("d", 3), at("e", 1, priority=1))
    expected = [entry.rollout_id for entry in log.partition.queue_head(9)]
    assert expected == ["e", "a", "b", "c", "d"]
    log.crash(durable=len(log.states), committed=0)
    assert [entry.rollout_id for entry in log.partition.queue_head(9)] == expected


def test_what_was_written_at_once_goes_by_its_writers_clock_unless_that_is_wrong() -> None:
    logged = 10**18
    for error in (-CLOCK_ERROR_NANOS_MAX, -1, 0, 1, CLOCK_ERROR_NANOS_MAX):
        assert queue_time(logged + error, logged) == logged + error
    for error in (-3600 * 10**9, -CLOCK_ERROR_NANOS_MAX - 1, CLOCK_ERROR_NANOS_MAX + 1, 3600 * 10**9):
        assert queue_time(logged + error, logged) == logged
    assert queue_time(5, None) == 5


def test_the_place_among_other_partitions_is_the_logs() -> None:
    log = Log()
    event = at("r", 5, priority=3)
    log.partition.on_event(event, 7, logged_unix_nano=10**18)
    (entry,) = log.partition.queue_head(1)
    assert (entry, entry.merge_key) == ((-3, 1, 7, 10**18, "r"), (-3, 1, 10**18))


def test_what_fell_silent_is_handed_out_again() -> None:
    log = Log()
    log.write(at("r", 1, max_attempts=2, retry_condition=["unresponsive"]), request(2, "lost"))
    lost = log.states[-1].attempts[-1].attempt_id
    log.write(silent("r").model_copy(update={"attempt_id": lost}))
    assert log.write(request(3, "next")) == [("r", "next")]
    assert [attempt.sequence for attempt in log.states[-1].attempts] == [1, 2]


def test_nothing_is_handed_out_to_who_listens_no_more() -> None:
    log = Log()
    log.write(at("r", 1))
    log.clock.advance(100)
    assert log.write(request(2, "gone", stands=log.clock.now_unix_nano() - 2 - 1)) == []
    assert log.write(request(3, "here", stands=log.clock.now_unix_nano() - 3)) == [("r", "here")]


RUNS = ["", "a", "b", ANY_RUN]


def run_of(log: Log, entry: QueueEntry) -> str:
    state = log.partition.state_of(entry.rollout_id)
    assert state is not None
    return state.rollout.run_id


RECORDS = st.lists(
    st.one_of(
        st.builds(lambda n, t: ("enqueue", n, t), st.integers(0, 9), st.integers(0, 3)),
        st.builds(lambda n, run: ("request", n, run), st.integers(0, 4), st.integers(0, 3)),
        st.builds(lambda n: ("end", n, 0), st.integers(0, 9)),
    ),
    max_size=30,
)


@settings(max_examples=examples(300), deadline=None)
@given(records=RECORDS, durable=st.integers(0, 60), back=st.integers(0, 30))
def test_a_crash_in_the_middle_of_an_answer_changes_nothing(
    records: list[tuple[str, int, int]], durable: int, back: int
) -> None:
    log = Log()
    for number, (kind, n, time) in enumerate(records):
        if kind == "enqueue":
            log.write(at(f"r{n}", time, run_id=RUNS[n % 3], max_attempts=2, retry_condition=["failed"]))
        elif kind == "request":
            waiting = [t.rollout_id for t in log.partition.queue_head(99) if RUNS[time] in (ANY_RUN, run_of(log, t))]
            got = log.write(request(number, *(f"w{worker}" for worker in range(n)), run_id=RUNS[time]))
            assert [rollout_id for rollout_id, _ in got] == waiting[:n]
        elif (state := log.partition.state_of(f"r{n}")) is not None and state.attempts:
            attempt_id = state.attempts[-1].attempt_id
            log.write(ended(f"r{n}", error="E").model_copy(update={"attempt_id": attempt_id}))
    written = list(log.states)
    durable = min(durable, len(written))
    # What is committed is durable: the first event whose states are not all durable is read again at the latest.
    first_lost = written[durable].source_offset if durable < len(written) else len(log.records)
    log.crash(durable, max(0, first_lost - back))
    assert log.states == written
