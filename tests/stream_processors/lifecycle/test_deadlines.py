"""Time-outs and silence, by a clock that is moved by hand."""

from __future__ import annotations

from typing import Any

import pytest

from lightstream.runtime.clock import NANOS_PER_SECOND
from lightstream.schemas.records import AttemptStatus, EventKind, RolloutEvent, RolloutStatus
from lightstream.stream_processors.core.lifecycle import Deadlines, Limits
from lightstream.stream_processors.core.lifecycle.deadlines import VOID_MAX

from .build import Partition, ended, enqueued, heartbeat, said, started

AGAIN: dict[str, Any] = {"max_attempts": 2, "retry_condition": ["unresponsive"]}


def kinds(partition: Partition, seconds: float) -> list[EventKind]:
    return [event.kind for event in partition.tick(seconds)]


def test_an_attempt_times_out_once() -> None:
    partition = Partition()
    partition.write(enqueued(timeout_seconds=5, unresponsive_seconds=100), started())
    assert kinds(partition, 4.9) == []
    assert kinds(partition, 0.1) == [EventKind.TIMED_OUT]
    assert kinds(partition, 1000) == []
    assert partition.state().status is RolloutStatus.FAILED
    assert partition.state().attempts[0].status is AttemptStatus.TIMEOUT
    assert partition.state().attempts[0].error_message == "not over 5 s after its start"


def test_deadlines_that_nobody_named_are_finite() -> None:
    partition = Partition()
    partition.write(enqueued(), started())
    assert kinds(partition, 60) == [EventKind.UNRESPONSIVE]
    partition = Partition()
    partition.write(enqueued(unresponsive_seconds=1000), started())
    assert kinds(partition, 600) == [EventKind.TIMED_OUT]


def test_of_attempts_that_are_over_nothing_stays() -> None:
    deadlines = Deadlines(Limits())
    partition = Partition()
    for number in range(3 * VOID_MAX):
        name = f"r{number}"
        partition.write(enqueued(rollout_id=name), started(rollout_id=name))
        deadlines.update(partition.state(name), number)
        partition.write(ended(rollout_id=name))
        deadlines.update(partition.state(name), number)
    assert len(deadlines) == 0
    assert len(deadlines._heap) <= VOID_MAX + 1  # pyright: ignore[reportPrivateUsage]  # what it keeps


def test_an_endless_deadline_is_a_very_long_one() -> None:
    partition = Partition()
    partition.write(enqueued(timeout_seconds=float("inf"), unresponsive_seconds=float("inf")), started())
    assert kinds(partition, 9 * 365 * 24 * 3600) == []


def test_heartbeats_put_silence_off() -> None:
    partition = Partition()
    partition.write(enqueued(unresponsive_seconds=10), started())
    for _ in range(5):
        assert kinds(partition, 9) == []
        partition.write(heartbeat())
    assert kinds(partition, 9.9) == []
    assert kinds(partition, 0.1) == [EventKind.UNRESPONSIVE]
    assert kinds(partition, 100) == []


def test_a_revived_attempt_may_fall_silent_again_under_another_id() -> None:
    partition = Partition()
    partition.write(enqueued(unresponsive_seconds=10, **AGAIN), started())
    first = partition.tick(10)
    partition.write(heartbeat())
    assert kinds(partition, 9.9) == []
    second = partition.tick(0.1)
    assert [event.kind for event in first + second] == [EventKind.UNRESPONSIVE] * 2
    assert first[0].event_id != second[0].event_id
    partition.write(heartbeat())
    assert kinds(partition, 600) == [EventKind.TIMED_OUT]


def test_a_silent_attempt_whose_rollout_waits_has_no_deadline() -> None:
    partition = Partition()
    partition.write(enqueued(timeout_seconds=30, unresponsive_seconds=10, **AGAIN), started())
    assert kinds(partition, 10) == [EventKind.UNRESPONSIVE]
    assert kinds(partition, 1000) == []


def test_a_waiting_or_finished_rollout_has_no_deadline() -> None:
    partition = Partition()
    partition.write(enqueued("waits"), enqueued("over"), started("over"), ended("over"))
    assert kinds(partition, 10_000) == []


def test_each_attempt_has_its_own_deadline() -> None:
    partition = Partition()
    config: dict[str, Any] = {"timeout_seconds": 5, "max_attempts": 2, "retry_condition": ["timeout"]}
    partition.write(enqueued(**config), started())
    assert kinds(partition, 5) == [EventKind.TIMED_OUT]
    later = partition.clock.now_unix_nano()
    partition.write(started(sequence=2).model_copy(update={"occurred_unix_nano": later}))
    assert kinds(partition, 4.9) == []
    assert kinds(partition, 0.1) == [EventKind.TIMED_OUT]
    assert partition.state().status is RolloutStatus.FAILED


def test_after_a_restart_deadlines_hold_and_silence_is_counted_afresh() -> None:
    partition = Partition()
    partition.write(enqueued(timeout_seconds=100, unresponsive_seconds=10), started())
    partition.clock.advance(50)
    partition.crash()
    assert kinds(partition, 9.9) == [], "nobody listened while the worker was down"
    assert kinds(partition, 0.1) == [EventKind.UNRESPONSIVE]
    partition = Partition()
    partition.write(enqueued(timeout_seconds=100, unresponsive_seconds=1000), started())
    partition.clock.advance(50)
    partition.crash()
    assert kinds(partition, 49.9) == []
    assert kinds(partition, 0.1) == [EventKind.TIMED_OUT]


def test_a_deadline_that_passed_while_the_worker_was_down_is_noticed_at_once() -> None:
    partition = Partition()
    partition.write(enqueued(timeout_seconds=5), started())
    partition.clock.advance(60)
    partition.crash()
    assert kinds(partition, 0) == [EventKind.TIMED_OUT]


def test_many_attempts_fall_due_in_order_of_time() -> None:
    partition = Partition()
    for i in range(20):
        partition.write(enqueued(f"r{i}", timeout_seconds=20 - i, unresponsive_seconds=1000), started(f"r{i}"))
    assert [event.rollout_id for event in partition.tick(20)] == [f"r{i}" for i in reversed(range(20))]


def heard(partition: Partition, ago_s: float, *, clock_error_s: float = 0.0, **changes: Any) -> RolloutEvent:
    """Somebody says now when the attempt was last heard of; both by a clock that may be wrong."""
    now = partition.clock.now_unix_nano() + int(clock_error_s * NANOS_PER_SECOND)
    event = said(last_heartbeat_unix_nano=now - int(ago_s * NANOS_PER_SECOND), **changes)
    return event.model_copy(update={"occurred_unix_nano": now, "event_id": f"said {len(partition.events)}"})


def running(**config: Any) -> Partition:
    partition = Partition()
    partition.write(enqueued(**config), started())
    return partition


@pytest.mark.parametrize("status", [None, AttemptStatus.RUNNING])
def test_an_attempt_that_is_said_to_be_silent_for_too_long_is_so_at_once(status: AttemptStatus | None) -> None:
    partition = running(unresponsive_seconds=5)
    partition.write(heard(partition, 100, status=status))
    assert partition.state().attempts[0].status is (status or AttemptStatus.PREPARING)
    assert kinds(partition, 0) == [EventKind.UNRESPONSIVE]
    assert kinds(partition, 1000) == []


def test_silence_is_counted_from_when_an_attempt_is_said_to_have_been_heard_of() -> None:
    partition = running(unresponsive_seconds=5)
    partition.write(heard(partition, 3))
    assert kinds(partition, 1.9) == []
    partition.write(heard(partition, 1))
    assert kinds(partition, 3.9) == []
    assert kinds(partition, 0.1) == [EventKind.UNRESPONSIVE]


@pytest.mark.parametrize("clock_error_s", [-3600.0, 0.0, 3600.0])
@pytest.mark.parametrize("ago_s", [-7200.0, 0.0])
def test_a_wrong_clock_and_a_time_to_come_do_no_harm(ago_s: float, clock_error_s: float) -> None:
    partition = running(unresponsive_seconds=5)
    partition.write(heard(partition, ago_s, clock_error_s=clock_error_s))
    assert kinds(partition, 4.9) == []
    assert kinds(partition, 0.1) == [EventKind.UNRESPONSIVE]


def test_the_default_of_silence_is_about_what_is_heard_here() -> None:
    partition = running()
    partition.write(heard(partition, 1000))
    assert kinds(partition, 59.9) == []
    assert kinds(partition, 0.1) == [EventKind.UNRESPONSIVE]


@pytest.mark.parametrize(("ago_s", "is_silent"), [(100, True), (0, False)])
def test_what_is_said_while_silence_is_suspected(ago_s: float, is_silent: bool) -> None:
    """It lies in the log before the suspicion: of an old sign of life nothing changes, a new one refutes it."""
    partition = running(unresponsive_seconds=5, **AGAIN)
    partition.clock.advance(6)
    (suspicion,) = partition.lifecycle.due()
    partition.clock.advance(0.1)
    partition.write(heard(partition, ago_s))
    assert partition.lifecycle.due() == [], "it was reported"
    partition.write(suspicion)
    found = partition.lifecycle.due()
    assert [event.kind for event in found] == ([EventKind.UNRESPONSIVE] if is_silent else [])
    partition.write(*found)
    assert kinds(partition, 5) == ([] if is_silent else [EventKind.UNRESPONSIVE])


def test_many_words_of_silence_make_one_report() -> None:
    partition = running(unresponsive_seconds=50, **AGAIN)
    for ago_s in (10, 20, 30, 20, 10, 40):
        partition.write(heard(partition, ago_s))
    assert kinds(partition, 9.9) == []
    assert kinds(partition, 0.1) == [EventKind.UNRESPONSIVE]
    assert kinds(partition, 100) == []
