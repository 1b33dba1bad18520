"""What a life cycle that stood still for a while must not make of what lies in its log."""

from __future__ import annotations

from lightstream.schemas.records import TaskRequest
from lightstream.stream_processors.core.assembly import Assembler

from .build import Partition, ended, enqueued, heartbeat, started

STANDS_S = 60


def _request(partition: Partition, name: str) -> TaskRequest:
    now = partition.clock.now_unix_nano()
    return TaskRequest(
        request_id=name.rjust(16, "0"),
        worker_ids=["w"],
        occurred_unix_nano=now,
        stands_nanos=STANDS_S * 10**9,
    )


def test_what_was_opened_by_a_request_that_is_void_after_the_crash_gives_way_to_the_next() -> None:
    """The assembler reads again from the oldest open attempt on: for ever, if it kept what never began."""
    partition = Partition()
    partition.write(enqueued())
    partition.events.append(_request(partition, "first"))
    partition.process_and_crash(1, writes=1)
    partition.clock.advance(STANDS_S + 1)
    partition.process(1)
    partition.write(_request(partition, "second"))
    attempt = partition.state().attempts[-1]
    end = ended().model_copy(update={"attempt_id": attempt.attempt_id})
    partition.write(end)
    assert partition.state().status == "succeeded"
    never_began, began = partition.opened()
    assert [record.attempt_id for record in partition.closed()] == [attempt.attempt_id] == [began]
    assert partition.effects[0].attempt_sequence == partition.effects[1].attempt_sequence
    assembler = Assembler()
    trajectories = assembler.on_records((record, offset) for offset, record in enumerate(partition.effects))
    assert ([trajectory.attempt_id for trajectory in trajectories], assembler.open_count) == ([began], 0)
    assert never_began != began


def test_silence_that_was_told_before_a_crash_is_told_again() -> None:
    """Whoever was told that an attempt is over must not find it running."""
    partition = Partition()
    partition.write(enqueued(unresponsive_seconds=10), started())
    partition.clock.advance(10)
    partition.events.extend(partition.lifecycle.due())
    partition.process(1)  # the suspicion
    partition.events.extend(partition.lifecycle.due())
    partition.process_and_crash(1, writes=1)  # it was closed, but no state says so
    partition.clock.advance(5)
    partition.crash()  # restored later, which counts as a sign of life for the timer
    partition.process(1)
    assert partition.state().status == "failed"
    first, again = partition.closed()
    assert first == again


def test_silence_that_two_life_cycles_told_counts_once() -> None:
    partition = Partition()
    partition.write(enqueued(unresponsive_seconds=10, max_attempts=2, retry_condition=["unresponsive"]), started())
    (told,) = partition.tick(10)
    partition.write(heartbeat(), told)
    assert partition.state().status == "running"
    assert partition.verdict().reason == "already applied"


def test_an_attempt_whose_signs_of_life_are_in_the_log_is_not_silent() -> None:
    """A worker that was suspended, or far behind, must not give up what ran all the while."""
    partition = Partition()
    partition.write(enqueued(unresponsive_seconds=10), started())
    partition.clock.advance(9)
    partition.events.append(heartbeat())
    partition.clock.advance(2)
    partition.events.extend(partition.lifecycle.due())
    partition.clock.advance(0.001)
    partition.process(len(partition.events))
    assert partition.lifecycle.due() == []
    assert partition.state().status == "running"
