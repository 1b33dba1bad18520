"""Time-outs and silence, by a clock that is moved by hand."""

from __future__ import annotations

from typing import Any

from lightstream.schemas.records import AttemptStatus, EventKind, RolloutStatus

from .build import Partition, ended, enqueued, heartbeat, started

AGAIN: dict[str, Any] = {"max_attempts": 2, "retry_condition": ["unresponsive"]}


def kinds(partition: Partition, seconds: float) -> list[EventKind]:
    return [fact.kind for fact in partition.tick(seconds)]


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
    assert [fact.kind for fact in first + second] == [EventKind.UNRESPONSIVE] * 2
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
    assert [fact.rollout_id for fact in partition.tick(20)] == [f"r{i}" for i in reversed(range(20))]
