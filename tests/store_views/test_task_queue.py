"""The queue of attempts to run: what is settled is committed, and nobody waits behind the thread that takes."""

from __future__ import annotations

import threading

from lightstream.schemas.codec import codec_for
from lightstream.schemas.kafka import KafkaPublisher
from lightstream.schemas.records import RolloutMode, RolloutSpec, RolloutTask
from lightstream.schemas.settings import Settings
from lightstream.schemas.topics import ROLLOUT_QUEUE
from lightstream.store_views.stores.kafka.queue import AHEAD_MAX, QueuedTask, TaskQueue

TAKE_TIMEOUT_S = 20.0


def publish(settings: Settings, *rollout_ids: str) -> None:
    publisher = KafkaPublisher(settings)
    for rollout_id in rollout_ids:
        spec = RolloutSpec(
            rollout_id=rollout_id, run_id="r", mode=RolloutMode.TRAIN, input_json="{}", enqueued_unix_nano=1
        )
        publisher.publish(ROLLOUT_QUEUE, rollout_id, RolloutTask(rollout=spec, attempt_sequence=1))
    assert publisher.close(30) == 0


def rollout_of(taken: QueuedTask | None) -> str:
    assert taken is not None
    assert taken.task is not None
    return taken.task.rollout.rollout_id


def test_settling_does_not_wait_behind_a_take(settings: Settings) -> None:
    """Runners settle in their event loop: were that to wait for the next task, every attempt would stand still."""
    queue = TaskQueue(settings, codec_for(settings))
    publish(settings, "first")
    first = queue.take(TAKE_TIMEOUT_S)
    assert rollout_of(first) == "first"
    assert first is not None
    taken: list[QueuedTask | None] = []
    taking = threading.Thread(target=lambda: taken.append(queue.take(TAKE_TIMEOUT_S)))
    taking.start()
    queue.settle(first)
    assert taking.is_alive()
    publish(settings, "second")
    taking.join()
    assert rollout_of(taken[0]) == "second"
    queue.close()

    again = TaskQueue(settings, codec_for(settings))  # the second was never settled
    assert rollout_of(again.take(TAKE_TIMEOUT_S)) == "second"
    again.close()


def test_a_queue_longer_than_what_is_held_ready_is_handed_out_whole(settings: Settings) -> None:
    wanted = {f"r{number}" for number in range(2 * AHEAD_MAX + 500)}
    publish(settings, *wanted)
    queue = TaskQueue(settings, codec_for(settings))
    taken = [rollout_of(queue.take(TAKE_TIMEOUT_S)) for _ in range(len(wanted))]
    queue.close()
    assert len(taken) == len(wanted)
    assert set(taken) == wanted
