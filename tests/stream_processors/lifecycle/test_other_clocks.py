"""Deadlines and requests count by the log's clock and by durations: what a writer's clock says decides nothing."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lightstream.schemas.records import RolloutEvent, RolloutState, TaskRequest

from .build import Partition, added, enqueued, rollout_started, started

NANOS_PER_S = 10**9
STANDS_S = 60
TIMEOUT_S = 20
SKEW_S = st.integers(-400 * 24 * 3600, 400 * 24 * 3600)


def _request(occurred_unix_nano: int) -> TaskRequest:
    return TaskRequest(
        request_id="0" * 16,
        worker_ids=["w"],
        occurred_unix_nano=occurred_unix_nano,
        stands_nanos=STANDS_S * NANOS_PER_S,
    )


def _written(partition: Partition, event: RolloutEvent, skew_s: int) -> RolloutState:
    """Fold an event of a writer whose clock is wrong, which the broker took down now."""
    now = partition.clock.now_unix_nano()
    skewed = event.model_copy(update={"occurred_unix_nano": now + skew_s * NANOS_PER_S})
    partition.events.append(skewed)
    transition = partition.lifecycle.on_event(skewed, len(partition.events) - 1, now)
    assert transition is not None
    assert transition.record is not None
    partition.states.append(transition.record)
    partition.committed += 1
    return transition.record


@given(skew_s=SKEW_S, age_s=st.integers(0, 2 * STANDS_S))
def test_a_request_stands_for_its_time_in_the_log(skew_s: int, age_s: int) -> None:
    partition = Partition()
    partition.write(enqueued())
    logged = partition.clock.now_unix_nano()
    partition.clock.advance(age_s)
    starts = partition.lifecycle.on_request(_request(logged + skew_s * NANOS_PER_S), 1, logged)
    assert starts is not None
    assert [start.action.value for start in starts if start.record is not None] == (
        ["start next attempt"] if age_s <= STANDS_S else []
    )


@given(skew_s=SKEW_S, beginning=st.sampled_from(["start", "add", "create", "request"]), crashes=st.booleans())
def test_an_attempt_has_its_whole_time_whatever_its_writers_clock_says(
    skew_s: int, beginning: str, crashes: bool
) -> None:
    partition = Partition()
    limits: dict[str, Any] = {"timeout_seconds": TIMEOUT_S, "unresponsive_seconds": 10 * TIMEOUT_S}
    if beginning == "create":
        _written(partition, rollout_started(**limits), skew_s)
    else:
        _written(partition, enqueued(**limits), skew_s)
    if beginning in ("start", "add"):
        _written(partition, started() if beginning == "start" else added(), skew_s)
    elif beginning == "request":
        now = partition.clock.now_unix_nano()
        (start,) = partition.lifecycle.on_request(_request(now + skew_s * NANOS_PER_S), 1, now) or []
        assert start.record is not None
        partition.states.append(start.record)
    if crashes:
        partition.crash()
    partition.clock.advance(TIMEOUT_S - 1)
    assert partition.lifecycle.due() == []
    partition.clock.advance(2)
    assert [event.kind.value for event in partition.lifecycle.due()] == ["timed_out"]
