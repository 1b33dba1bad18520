"""The ledger on a real Kafka: whole steps or nothing, one writer, a past that can be read back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from lightstream.runtime.kafka import KafkaPublisher, consumer_config, run_headers
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import RecordTooLargeError, ServiceUnavailableError, TrainingError
from lightstream.schemas.records import ConsumedTrajectory, PartitionOffset, ResourcesRecord, TrainingStep
from lightstream.schemas.topics import TRAJECTORIES
from lightstream.trainers.ledger.kafka import KafkaLedger
from lightstream.trainers.ledger.snapshot import Snapshot
from lightstream.trainers.rollouts.trajectory_source import TrajectorySource
from lightstream.trainers.run.history import History, StepCommit, replay

from .support.trajectories import make_trajectory


def training_step(step: int, *, low: int = 0, consumed: int = 1, run_id: str = "run") -> TrainingStep:
    return TrainingStep(
        trainer_id="trainer",
        run_id=run_id,
        step=step,
        resources_id=f"run-v{step}",
        checkpoint_url=f"/checkpoints/{step}",
        consumed=[
            ConsumedTrajectory(
                rollout_id=f"s{step}-{i}",
                attempt_id=f"s{step}-{i}-a1",
                revision=0,
                group_id=f"s{step}",
                triplet_count=1,
            )
            for i in range(consumed)
        ],
        low_water=[PartitionOffset(topic="trajectories", partition=0, offset=low)],
        started_unix_nano=0,
        ended_unix_nano=1,
    )


def resources(version: int) -> ResourcesRecord:
    return ResourcesRecord(
        resources_id=f"run-v{version}",
        version=version,
        run_id="run",
        checkpoint_url=f"/checkpoints/{version}",
        created_unix_nano=0,
    )


@pytest.fixture
def source(settings: Settings) -> Iterator[TrajectorySource]:
    source = TrajectorySource(settings, f"{settings.topic_prefix}trainer", run_id="run")
    source.start({})
    yield source
    source.close()


def new_ledger(settings: Settings) -> KafkaLedger:
    return KafkaLedger(settings, trainer_id="trainer", run_id="run")


def test_what_is_committed_is_read_back(settings: Settings, source: TrajectorySource) -> None:
    ledger = new_ledger(settings)
    history = ledger.open()
    assert (history.last_step, history.resources, history.settled.consumed) == (0, None, {})
    ledger.publish_resources(resources(0))
    ledger.commit(StepCommit(training_step(1, low=3), resources(1), source.consumer_group))
    ledger.commit(StepCommit(training_step(2, low=5), resources(2), source.consumer_group))
    again = new_ledger(settings).open()
    assert again.last_step == 2
    assert again.settled.consumed == {"s1": {"s1-0": ("s1-0-a1", 0)}, "s2": {"s2-0": ("s2-0-a1", 0)}}
    assert again == history, "what is committed is added to the history"
    assert again.low_water == {0: 5}
    assert again.resources == resources(2)
    assert again.checkpoints == {0: "/checkpoints/0", 1: "/checkpoints/1", 2: "/checkpoints/2"}
    consumer = Consumer(consumer_config(settings, group_id=f"{settings.topic_prefix}trainer", read_committed=True))
    name = TRAJECTORIES.full_name(settings.topic_prefix)
    (position,) = consumer.committed([TopicPartition(name, 0)], timeout=30)
    assert position.offset == 5, "the group's offsets are part of the transaction"
    consumer.close()


def comparable(history: History) -> dict[str, Any]:
    """Return the fields, with texts for rewards: the NaN of a step without one does not equal itself."""
    return asdict(history) | {"mean_rewards": [str(mean) for mean in history.mean_rewards]}


def snapshot_of(settings: Settings) -> Path:
    return settings.data_dir / "ledger" / f"{settings.topic_prefix}trainer.json"


def committed_steps(settings: Settings, source: TrajectorySource, count: int) -> History:
    """Steps without resources among them, as after steps without a signal."""
    ledger = new_ledger(settings)
    history = ledger.open()
    if history.resources is None:
        ledger.publish_resources(resources(0))
    for step in range(history.last_step + 1, history.last_step + count + 1):
        made = step % 3 > 0
        record = training_step(step, low=step).model_copy(update={"ended_unix_nano": step})
        if not made:
            record = record.model_copy(update={"resources_id": None, "checkpoint_url": None})
        ledger.commit(StepCommit(record, resources(step) if made else None, source.consumer_group))
    return history


def test_a_restart_reads_on_from_the_last_snapshot(settings: Settings, source: TrajectorySource) -> None:
    history = committed_steps(settings, source, 25)
    file = snapshot_of(settings)
    snapshot = Snapshot.model_validate_json(file.read_bytes())
    assert snapshot.history.last_step == 20
    snapshot.history.made_with["marker"] = "this was read"
    file.write_text(snapshot.model_dump_json(), "utf-8")
    again = new_ledger(settings).open()
    assert again.made_with.pop("marker") == "this was read"
    assert comparable(again) == comparable(history)
    file.unlink()
    assert comparable(new_ledger(settings).open()) == comparable(history)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda s: s.model_copy(update={"step_offset": s.step_offset - 1}), id="another step"),
        pytest.param(lambda s: s.model_copy(update={"resources_offset": 0}), id="other resources"),
        pytest.param(lambda s: s.model_copy(update={"step_offset": 10_000}), id="behind the end"),
        pytest.param(lambda s: None, id="no snapshot at all"),
    ],
)
def test_a_snapshot_of_something_else_is_not_used(
    settings: Settings, source: TrajectorySource, change: Callable[[Snapshot], Snapshot | None]
) -> None:
    history = committed_steps(settings, source, 25)
    file = snapshot_of(settings)
    changed = change(Snapshot.model_validate_json(file.read_bytes()))
    if changed is not None:
        changed.history.made_with["marker"] = "this was read"
    file.write_text("damaged" if changed is None else changed.model_dump_json(), "utf-8")
    assert comparable(new_ledger(settings).open()) == comparable(history)


def test_the_first_resources_are_found_without_a_step(settings: Settings) -> None:
    ledger = new_ledger(settings)
    ledger.open()
    ledger.publish_resources(resources(0))
    assert new_ledger(settings).open().resources == resources(0)


def test_a_second_trainer_fences_the_first(settings: Settings, source: TrajectorySource) -> None:
    first = new_ledger(settings)
    first.open()
    second = new_ledger(settings)
    second.open()
    with pytest.raises(TrainingError, match="another process works as trainer 'trainer'"):
        first.commit(StepCommit(training_step(1), resources(1), source.consumer_group))
    second.commit(StepCommit(training_step(1), resources(1), source.consumer_group))
    assert new_ledger(settings).open().last_step == 1


def test_a_step_over_the_limit_is_refused_and_the_next_one_passes(settings: Settings, source: TrajectorySource) -> None:
    small = settings.model_copy(update={"record_bytes_max": 1024 * 1024})
    ledger = new_ledger(small)
    ledger.open()
    with pytest.raises(RecordTooLargeError):
        ledger.commit(StepCommit(training_step(1, consumed=50_000), resources(1), source.consumer_group))
    ledger.commit(StepCommit(training_step(1), resources(1), source.consumer_group))
    assert new_ledger(settings).open().last_step == 1


def test_topics_that_do_not_exist_are_named(settings: Settings) -> None:
    other = settings.model_copy(update={"topic_prefix": f"{settings.topic_prefix}none."})
    with pytest.raises(ServiceUnavailableError, match="no topic"):
        TrajectorySource(other, "group", run_id="run").start({})


def test_replay_refuses_a_ledger_that_contradicts_itself() -> None:
    def read(*steps: TrainingStep) -> None:
        past = [resources(s.step) for s in steps]
        replay(steps, past, trainer_id="trainer", run_id="run")

    read(training_step(1), training_step(2))
    with pytest.raises(TrainingError, match="from step 1 to 3"):
        read(training_step(1), training_step(3))
    with pytest.raises(TrainingError, match="from step 1 to 1"):
        read(training_step(1), training_step(1))
    with pytest.raises(TrainingError, match="of run 'other'"):
        read(training_step(1, run_id="other"))
    with pytest.raises(TrainingError, match="are gone"):
        replay([training_step(1)], [], trainer_id="trainer", run_id="run")


def test_the_source_starts_at_the_low_water_and_survives_garbage(settings: Settings) -> None:
    publisher = KafkaPublisher(settings)
    places = [
        publisher.publish(TRAJECTORIES, "group", make_trajectory(f"r{i}", group_id="group")).result(300)
        for i in range(3)
    ]
    publisher.publish_encoded(TRAJECTORIES, "group", b"no avro").result(300)
    publisher.publish(TRAJECTORIES, "group", make_trajectory("r4", group_id="group")).result(300)
    source = TrajectorySource(settings, "reader", run_id="run")
    source.start({places[0].partition: places[1].offset})
    seen: list[str] = []
    while len(seen) < 3:
        seen += [logged.trajectory.rollout_id for logged in source.poll(30)]
    assert seen == ["r1", "r2", "r4"]
    assert source.undecodable == 1
    assert source.next_offsets[places[0].partition] == places[0].offset + 5
    source.close()
    publisher.close()


def test_records_of_other_runs_are_passed_over_by_their_header(settings: Settings) -> None:
    publisher = KafkaPublisher(settings)
    ours, others = run_headers("run"), run_headers("other")
    publisher.publish_encoded(TRAJECTORIES, "group", b"nobody decodes this", headers=others).result(300)
    publisher.publish_encoded(TRAJECTORIES, "group", b"nobody decodes this", headers=run_headers("")).result(300)
    publisher.publish(TRAJECTORIES, "group", make_trajectory("r0", run_id="other")).result(300)  # an older writer's
    publisher.publish(TRAJECTORIES, "group", make_trajectory("r1"), headers=ours).result(300)
    last = publisher.publish(TRAJECTORIES, "group", make_trajectory("r2")).result(300)
    source = TrajectorySource(settings, "reader", run_id="run")
    source.start({})
    ends = source.end_offsets()
    assert ends[last.partition] == last.offset + 1
    seen: list[str] = []
    while not source.has_read(ends):
        seen += [logged.trajectory.rollout_id for logged in source.poll(1)]
    assert seen == ["r1", "r2"]
    assert (source.of_other_runs, source.undecodable) == (3, 0)
    source.close()
    publisher.close()
