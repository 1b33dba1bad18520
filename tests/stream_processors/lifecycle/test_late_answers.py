"""What a life cycle that stood still for a while must not make of what lies in its log."""

from __future__ import annotations

from lightstream.schemas.records import TaskRequest

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


def test_an_attempt_that_was_opened_is_closed_though_its_request_is_void_after_the_crash() -> None:
    """The assembler reads again from the oldest open attempt on, for ever if nobody closes it."""
    partition = Partition()
    partition.write(enqueued())
    partition.facts.append(_request(partition, "first"))
    partition.process_and_crash(1, writes=1)
    partition.clock.advance(STANDS_S + 1)
    partition.process(1)
    partition.write(_request(partition, "second"))
    attempt = partition.state().attempts[-1]
    end = ended().model_copy(update={"attempt_id": attempt.attempt_id})
    partition.write(end)
    assert partition.state().status == "succeeded"
    assert set(partition.opened()) == {record.attempt_id for record in partition.closed()}


def test_an_attempt_whose_signs_of_life_are_in_the_log_is_not_silent() -> None:
    """A worker that was suspended, or far behind, must not give up what ran all the while."""
    partition = Partition()
    partition.write(enqueued(unresponsive_seconds=10), started())
    partition.clock.advance(9)
    partition.facts.append(heartbeat())
    partition.clock.advance(2)
    partition.facts.extend(partition.lifecycle.due())
    partition.clock.advance(0.001)
    partition.process(len(partition.facts))
    assert partition.state().status == "running"
