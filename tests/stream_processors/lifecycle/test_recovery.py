"""Crashes are input: whatever was durable, the replay ends where an undisturbed run ends."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from lightstream.schemas.records import RolloutEvent, RolloutState, RolloutStatus
from tests.support.examples import examples

from .build import Partition, cancelled, changed, ended, enqueued, heartbeat, silent, started, timed_out


def requeued(rollout_id: str = "r", number: int = 0) -> RolloutEvent:
    """Somebody puts it into the queue: back, if it is over."""
    event = changed(rollout_id, status=RolloutStatus.REQUEUING)
    return event.model_copy(update={"event_id": f"{event.event_id}:{number}"})


ROLLOUTS = st.sampled_from(["x", "y", "z"])
SEQUENCES = st.integers(1, 3)
RUNNERS = st.integers(0, 1)
CONDITIONS = st.lists(st.sampled_from(["failed", "timeout", "unresponsive"]), max_size=3, unique=True)

EVENTS = st.one_of(
    st.builds(lambda r, n, c: enqueued(r, max_attempts=n, retry_condition=c), ROLLOUTS, SEQUENCES, CONDITIONS),
    st.builds(started, ROLLOUTS, SEQUENCES, RUNNERS),
    st.builds(heartbeat, ROLLOUTS, SEQUENCES, RUNNERS),
    st.builds(
        lambda r, s, n, e: ended(r, s, n, error=e), ROLLOUTS, SEQUENCES, RUNNERS, st.sampled_from([None, "Oops"])
    ),
    st.builds(timed_out, ROLLOUTS, SEQUENCES, RUNNERS),
    st.builds(silent, ROLLOUTS, SEQUENCES, RUNNERS),
    st.builds(cancelled, ROLLOUTS),
    st.builds(lambda r, n: requeued(r, n), ROLLOUTS, SEQUENCES),
)


def final_states(partition: Partition) -> dict[str, RolloutState | None]:
    return {rollout_id: partition.lifecycle.state_of(rollout_id) for rollout_id in "xyz"}


@settings(max_examples=examples(150), deadline=None)
@given(
    events=st.lists(EVENTS, max_size=40),
    batches=st.lists(st.tuples(st.integers(1, 6), st.none() | st.integers(0, 12)), min_size=1, max_size=40),
)
def test_a_crash_anywhere_changes_nothing_but_repeats(
    events: list[RolloutEvent], batches: list[tuple[int, int | None]]
) -> None:
    calm, stormy = Partition(), Partition()
    calm.events, stormy.events = list(events), list(events)
    for _ in events:
        calm.process(1)

    for count, crash_after_writes in batches:
        if crash_after_writes is None:
            stormy.process(count)
        else:
            stormy.process_and_crash(count, crash_after_writes)
    stormy.process(len(events))

    assert final_states(stormy) == final_states(calm)
    assert _once(stormy.effects) == _once(calm.effects)
    # A verdict once given is never contradicted: the same state records, possibly repeated.
    assert _once(stormy.states) == _once(calm.states)


def _once(records: list) -> list[str]:  # type: ignore[type-arg]  # of any records
    """In order of their first appearance, without repeats."""
    return sorted(set(map(repr, records)))


@given(events=st.lists(EVENTS, max_size=30), committed=st.integers(0, 30))
def test_events_that_a_state_reflects_are_skipped_wherever_the_replay_begins(
    events: list[RolloutEvent], committed: int
) -> None:
    partition = Partition()
    partition.write(*events)
    effects = list(partition.effects)
    before = final_states(partition)
    partition.crash()
    partition.committed = min(committed, len(events))
    partition.process(len(events))
    assert final_states(partition) == before
    assert partition.effects == effects


def test_of_several_states_the_one_furthest_in_the_log_counts() -> None:
    partition = Partition()
    partition.write(enqueued(), started(), ended())
    partition.states.reverse()  # as a compacted topic never is, but a stray old writer could make it
    partition.crash()
    assert partition.state().status == "succeeded"


def test_a_rollout_that_was_put_back_into_the_queue_is_restored_as_it_waits() -> None:
    """Its end is among the finished ones, and older."""
    partition = Partition()
    partition.write(enqueued(), started(), ended(), requeued())
    partition.crash()
    assert (partition.state().status, partition.waiting()) == ("requeuing", ["r"])
    partition.write(started(sequence=2), ended(sequence=2))
    partition.crash()
    assert (partition.state().status, partition.waiting()) == ("succeeded", [])
    assert [closed.attempt_id for closed in partition.closed() if closed.final] == ["r-a1-0", "r-a2-0"]


def test_a_rollout_whose_event_cannot_be_read_is_neither_dispatched_nor_overdue() -> None:
    partition = Partition()
    partition.write(enqueued("running"), started("running"), enqueued("r"), enqueued("other"))
    for rollout_id in ("running", "r", "unknown"):
        partition.lifecycle.hold(rollout_id)
    assert partition.waiting() == ["other"]
    assert partition.tick(1e9) == []
    partition.crash()  # a later version reads the event, and with it all that follows
    assert partition.waiting() == ["r", "other"]
    assert [event.rollout_id for event in partition.tick(1e9)] == ["running"]
