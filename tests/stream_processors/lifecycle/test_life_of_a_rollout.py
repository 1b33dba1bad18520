"""What happens to a rollout, event by event."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lightstream.schemas.errors import RecordError
from lightstream.schemas.records import (
    AssemblySpec,
    AttemptStatus,
    EventKind,
    RolloutConfig,
    RolloutEvent,
    RolloutSpec,
    RolloutStatus,
    VerdictOutcome,
)

from .build import (
    CODEC,
    LIMITS,
    Partition,
    attempt_name,
    cancelled,
    changed,
    ended,
    enqueued,
    heartbeat,
    said,
    silent,
    started,
    timed_out,
)

RETRY: dict[str, Any] = {"max_attempts": 2, "retry_condition": [AttemptStatus.FAILED, AttemptStatus.TIMEOUT]}


def test_a_rollout_runs_and_succeeds() -> None:
    partition = Partition()
    partition.write(enqueued(), started(), heartbeat(), ended())
    assert [state.status for state in partition.states] == ["queuing", "preparing", "running", "succeeded"]
    assert [state.verdict.outcome for state in partition.states] == [VerdictOutcome.APPLIED] * 4
    assert [state.source_offset for state in partition.states] == [0, 1, 2, 3]
    assert partition.waiting() == []
    assert partition.opened() == [attempt_name("r", 1)]
    (closed,) = partition.closed()
    assert (closed.status, closed.rollout_status, closed.final) == ("succeeded", "succeeded", True)


def test_a_failed_attempt_is_tried_again_and_the_last_failure_is_final() -> None:
    partition = Partition()
    partition.write(enqueued(**RETRY), started(), ended(error="ValueError"))
    assert partition.state().status is RolloutStatus.REQUEUING
    assert partition.waiting() == ["r"]
    partition.write(started(sequence=2), ended(sequence=2, error="SystemExit"))
    assert partition.state().status is RolloutStatus.FAILED
    assert [(c.attempt_sequence, c.final, c.error_type) for c in partition.closed()] == [
        (1, False, "ValueError"),
        (2, True, "SystemExit"),
    ]


def test_a_failure_that_is_not_to_be_retried_is_final() -> None:
    partition = Partition()
    partition.write(enqueued(max_attempts=3, retry_condition=["timeout"]), started(), ended(error="ValueError"))
    assert partition.state().status is RolloutStatus.FAILED
    assert partition.waiting() == []


def test_a_repeated_enqueue_is_the_same_rollout() -> None:
    partition = Partition()
    partition.write(enqueued(), enqueued(event_id="again", max_attempts=9))
    assert partition.verdict().outcome is VerdictOutcome.IGNORED
    assert partition.verdict().reason == "already enqueued"
    assert partition.state().rollout.config.max_attempts == 1
    assert partition.waiting() == ["r"]


def test_of_two_runners_with_the_same_task_one_starts() -> None:
    partition = Partition()
    partition.write(enqueued(), started(runner=1), started(runner=2))
    assert partition.verdict().outcome is VerdictOutcome.REFUSED
    assert attempt_name("r", 1, 1) in partition.verdict().reason
    assert partition.opened() == [attempt_name("r", 1, 1)]


def test_a_repeated_start_is_the_same_attempt() -> None:
    partition = Partition()
    partition.write(enqueued(), started(), started())
    assert partition.verdict().outcome is VerdictOutcome.IGNORED
    assert len(partition.opened()) == 1


def test_a_start_out_of_turn_is_refused() -> None:
    partition = Partition()
    partition.write(enqueued(**RETRY), started(sequence=2))
    assert partition.verdict().outcome is VerdictOutcome.REFUSED
    assert partition.state().attempts == []


@pytest.mark.parametrize("late", [ended(), ended(error="X"), timed_out(), silent(), cancelled(), enqueued(), started()])
@pytest.mark.parametrize("last", [ended(), ended(error="X"), timed_out(), cancelled()])
def test_terminal_is_terminal(last: RolloutEvent, late: RolloutEvent) -> None:
    partition = Partition()
    partition.write(enqueued(), started(), last)
    before = partition.state()
    assert before.status.is_terminal
    partition.write(late)
    after = partition.state()
    assert partition.verdict().outcome is not VerdictOutcome.APPLIED
    assert partition.verdict().reason
    assert (after.status, after.attempts, after.ended_unix_nano) == (
        before.status,
        before.attempts,
        before.ended_unix_nano,
    )
    assert sum(closed.final for closed in partition.closed()) == 1


def test_a_late_end_of_a_superseded_attempt_never_wins() -> None:
    partition = Partition()
    partition.write(enqueued(**RETRY), started(), timed_out(), ended())
    assert partition.verdict().outcome is VerdictOutcome.IGNORED
    assert partition.state().status is RolloutStatus.REQUEUING
    partition.write(started(sequence=2), ended(sequence=1), heartbeat(sequence=1))
    assert partition.state().status is RolloutStatus.PREPARING
    assert partition.state().attempts[0].status is AttemptStatus.TIMEOUT
    partition.write(ended(sequence=2))
    assert partition.state().status is RolloutStatus.SUCCEEDED


def test_an_unresponsive_attempt_without_a_retry_left_fails_its_rollout() -> None:
    partition = Partition()
    partition.write(enqueued(), started(), silent())
    assert partition.state().status is RolloutStatus.FAILED
    assert [(closed.status, closed.final) for closed in partition.closed()] == [("unresponsive", True)]
    partition.write(heartbeat(), ended())
    assert partition.state().status is RolloutStatus.FAILED


def test_an_unresponsive_attempt_may_come_back_until_another_has_begun() -> None:
    partition = Partition()
    partition.write(enqueued(max_attempts=2, retry_condition=["unresponsive"]), started(), silent())
    assert partition.state().status is RolloutStatus.REQUEUING
    assert partition.closed() == []
    partition.write(heartbeat())
    assert (partition.state().status, partition.state().attempts[0].status) == ("running", "running")
    partition.write(started(sequence=2))
    assert partition.verdict().outcome is VerdictOutcome.REFUSED, "nobody runs what came back a second time"
    partition.write(silent().model_copy(update={"event_id": "again"}))
    assert partition.waiting() == ["r"]
    partition.write(ended())
    assert partition.state().status is RolloutStatus.SUCCEEDED
    assert [(closed.attempt_sequence, closed.final) for closed in partition.closed()] == [(1, True)]


def test_an_unresponsive_attempt_is_given_up_when_another_begins() -> None:
    partition = Partition()
    partition.write(enqueued(max_attempts=2, retry_condition=["unresponsive"]), started(), silent())
    partition.write(started(sequence=2))
    assert [(closed.status, closed.final) for closed in partition.closed()] == [("unresponsive", False)]
    partition.write(heartbeat(), ended())
    assert partition.verdict().outcome is VerdictOutcome.IGNORED
    partition.write(silent(sequence=2))
    assert partition.state().status is RolloutStatus.FAILED


def test_cancelling_a_running_rollout_closes_its_attempt() -> None:
    partition = Partition()
    partition.write(enqueued(**RETRY), started(), cancelled())
    assert partition.state().status is RolloutStatus.CANCELLED
    (closed,) = partition.closed()
    assert (closed.status, closed.final, closed.error_type) == ("failed", True, "Cancelled")
    partition.write(ended())
    assert partition.verdict().outcome is VerdictOutcome.IGNORED


def test_cancelling_a_waiting_rollout_still_gives_one_final_record() -> None:
    partition = Partition()
    partition.write(enqueued(), cancelled())
    assert partition.opened() == ["r-none1"]
    (closed,) = partition.closed()
    assert (closed.attempt_id, closed.attempt_sequence, closed.final) == ("r-none1", 1, True)
    assert partition.state().attempts == []
    partition.write(started())
    assert partition.verdict().outcome is VerdictOutcome.REFUSED


def test_a_event_about_an_unknown_rollout_gets_an_answer_that_is_no_rollout() -> None:
    partition = Partition()
    partition.write(ended("ghost"))
    assert partition.states[-1].status is RolloutStatus.UNKNOWN
    assert partition.verdict().reason == "Rollout ghost not found"
    partition.crash()
    assert partition.lifecycle.state_of("ghost") is None
    partition.write(enqueued("ghost"))
    assert partition.verdict().outcome is VerdictOutcome.APPLIED


def test_a_heartbeat_that_changes_nothing_writes_nothing() -> None:
    partition = Partition()
    partition.write(heartbeat(), enqueued(), heartbeat(), started(), heartbeat(), heartbeat(at=2), heartbeat(runner=5))
    assert [state.verdict.event_id for state in partition.states] == [
        "r:enqueued",
        "r-a1-0:started",
        "r-a1-0:heartbeat:1",
    ]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"config": RolloutConfig.model_construct(max_attempts=0)}, "config.max_attempts"),
        ({"config": RolloutConfig.model_construct(timeout_seconds=-1.0)}, "config.timeout_seconds"),
        ({"config": RolloutConfig.model_construct(timeout_seconds=float("nan"))}, "config.timeout_seconds"),
        ({"config": RolloutConfig(max_attempts=10**6)}, "max_attempts"),
        ({"group_size": 0}, "group_size"),
        ({"assembly": AssemblySpec.model_construct(credit="identicle")}, "assembly.credit"),
        ({"assembly": AssemblySpec.model_construct(reward_match="clock")}, "first_occurrence"),
        ({"assembly": AssemblySpec.model_construct(trained_agents="(")}, "not a regular expression"),
        ({"rollout_id": "another"}, "another"),
        ({"input_json": "x" * (LIMITS.record_bytes_max - 1000)}, "bytes"),
    ],
)
def test_a_rollout_that_breaks_a_rule_is_refused_by_name(change: dict[str, object], named: str) -> None:
    event = enqueued()
    assert event.rollout is not None
    partition = Partition()
    partition.write(event.model_copy(update={"rollout": event.rollout.model_copy(update=change)}))
    assert partition.verdict().outcome is VerdictOutcome.REFUSED
    assert named in partition.verdict().reason
    assert partition.effects == []
    partition.write(enqueued(event_id="corrected"))
    assert partition.verdict().outcome is VerdictOutcome.APPLIED


def test_events_without_what_their_kind_needs_are_refused() -> None:
    partition = Partition()
    partition.write(enqueued().model_copy(update={"rollout": None}))
    assert partition.verdict().outcome is VerdictOutcome.REFUSED
    partition.write(enqueued(), started().model_copy(update={"attempt_id": None}))
    assert partition.verdict().outcome is VerdictOutcome.REFUSED
    partition.write(started(), ended().model_copy(update={"attempt_changes": None}))
    assert partition.verdict().outcome is VerdictOutcome.REFUSED
    partition.write(ended().model_copy(update={"kind": EventKind.UNKNOWN}))
    assert partition.verdict().outcome is VerdictOutcome.REFUSED
    assert partition.state().status is RolloutStatus.PREPARING


@pytest.mark.parametrize(
    "change", [{"rollout_id": ""}, {"rollout_id": "r" * 257}, {"event_id": ""}, {"attempt_id": "a" * 2000}]
)
def test_ids_that_no_state_can_carry_are_an_error_and_change_nothing(change: dict[str, str]) -> None:
    partition = Partition()
    with pytest.raises(RecordError):
        partition.lifecycle.on_event(started().model_copy(update=change), 0)


def test_a_long_error_keeps_both_ends() -> None:
    partition = Partition()
    event = ended(error="X").model_copy(update={"error_message": "what failed" + "a" * 100_000 + "the cause"})
    partition.write(enqueued(), started(), event)
    message = partition.state().attempts[0].error_message
    assert message is not None
    assert len(message) == 2000
    assert message.startswith("what failed")
    assert "[…]" in message
    assert message.endswith("the cause")


def test_a_state_of_the_largest_rollout_fits_in_a_record() -> None:
    limits = replace(LIMITS, record_bytes_max=1024 * 1024)
    partition = Partition(limits)
    config = RolloutConfig(max_attempts=3, retry_condition=[AttemptStatus.FAILED])
    event = enqueued(max_attempts=3, retry_condition=["failed"])
    spec = RolloutSpec(rollout_id="r", input_json="x" * limits.spec_bytes_max(config), metadata_json="", config=config)
    partition.write(event.model_copy(update={"rollout": spec}))
    for sequence in (1, 2, 3):
        end = ended(sequence=sequence, error="€" * 300).model_copy(update={"error_message": "€" * 5000})
        partition.write(started(sequence=sequence), end)
    assert partition.state().status is RolloutStatus.FAILED
    assert len(CODEC.encode(partition.states[-1])) < limits.record_bytes_max - 512


def test_a_rollout_is_queued_again_once_by_the_same_event() -> None:
    """Whoever has no answer writes it again; in between, another attempt may have begun."""
    partition = Partition()
    again = changed(status=RolloutStatus.REQUEUING)
    partition.write(enqueued(), started(), again, started(sequence=2), again)
    assert partition.verdict().outcome is VerdictOutcome.IGNORED
    assert partition.state().status is RolloutStatus.PREPARING
    assert len(partition.opened()) == 2
    assert [closed.attempt_id for closed in partition.closed()] == [partition.opened()[0]]


def test_an_end_of_the_latest_attempt_said_twice_ends_one() -> None:
    partition = Partition()
    failed = said(status="failed")
    partition.write(enqueued(max_attempts=3, retry_condition=["failed"]), started(), failed)
    partition.crash()
    partition.write(started(sequence=2), failed)
    assert partition.verdict().outcome is VerdictOutcome.IGNORED
    assert [attempt.status.value for attempt in partition.state().attempts] == ["failed", "preparing"]


@pytest.mark.parametrize("status", [RolloutStatus.QUEUING, RolloutStatus.REQUEUING])
@pytest.mark.parametrize("end", [ended(), ended(error="Oops"), cancelled()])
def test_a_finished_rollout_goes_back_into_the_queue_for_one_more_attempt(
    status: RolloutStatus, end: RolloutEvent
) -> None:
    partition = Partition()
    partition.write(enqueued(), started(), end, changed(status=status))
    assert (partition.state().status, partition.waiting()) == (status, ["r"])
    assert partition.state().ended_unix_nano is None
    partition.write(ended(), heartbeat())
    assert partition.verdict().outcome is VerdictOutcome.IGNORED, "its first attempt stays over"
    partition.write(started(sequence=2), ended(sequence=2))
    assert partition.state().status is RolloutStatus.SUCCEEDED
    assert [closed.attempt_sequence for closed in partition.closed() if closed.final] == [1, 2]


def test_what_ends_a_rollout_is_not_repeated_after_it_went_back_into_the_queue() -> None:
    """A writer without an answer writes again."""
    partition = Partition()
    again = changed(status=RolloutStatus.REQUEUING)
    partition.write(enqueued(), started(), cancelled(), again, cancelled())
    assert (partition.verdict().reason, partition.waiting()) == ("already applied", ["r"])
    partition.write(started(sequence=2), ended(sequence=2), again)
    assert (partition.verdict().reason, partition.state().status) == ("already applied", "succeeded")


def test_a_lease_that_is_returned_too_late_revives_nothing() -> None:
    partition = Partition()
    returned = changed(status=RolloutStatus.REQUEUING).model_copy(update={"attempt_id": attempt_name("r", 1)})
    partition.write(enqueued(), started(), cancelled(), returned)
    assert partition.verdict().outcome is VerdictOutcome.IGNORED
    assert (partition.state().status, partition.waiting()) == (RolloutStatus.CANCELLED, [])


def test_a_finished_rollout_with_as_many_attempts_as_fit_stays_over() -> None:
    limits = replace(LIMITS, record_bytes_max=512 * 1024)
    partition = Partition(limits)
    event = enqueued()
    spec = RolloutSpec(rollout_id="r", input_json="x" * limits.spec_bytes_max(RolloutConfig()), metadata_json="")
    partition.write(event.model_copy(update={"rollout": spec}), started(), ended())
    partition.write(changed(status=RolloutStatus.REQUEUING))
    assert (partition.verdict().outcome, partition.state().status) == (VerdictOutcome.REFUSED, "succeeded")
    assert "with 2 attempts at most" in partition.verdict().reason
