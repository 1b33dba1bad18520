"""A cluster that has forgotten the worker's offsets: at most what was under way is written again, nothing twice."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from lightstream.broker import EmbeddedBroker, EmbeddedBrokers
from lightstream.runtime.kafka import common_config, create_topics
from lightstream.runtime.settings import Settings
from lightstream.schemas.records import RolloutState, Trajectory
from lightstream.schemas.topics import ROLLOUTS, SPANS, TRAJECTORIES
from lightstream.stream_processors.worker.app import group_id
from tests.support.waiting import eventually

from .harness import TopicReader, WorkerProcess
from .test_worker_crashes import SEED, Feeder, check

PARTITIONS = 12


def forget_offsets(settings: Settings) -> None:
    """Once the last member of the group is gone."""
    admin = AdminClient(common_config(settings))

    def deleted() -> bool:
        futures = admin.delete_consumer_groups([group_id(settings)], request_timeout=30)
        return futures[group_id(settings)].exception() is None

    eventually(deleted, what="the group is empty and deleted")


def committed(settings: Settings) -> dict[int, int]:
    """Partition of ``spans`` -> the group's offset."""
    admin = AdminClient(common_config(settings))
    request = ConsumerGroupTopicPartitions(group_id(settings))
    answer = admin.list_consumer_group_offsets([request], request_timeout=30)[group_id(settings)].result()
    name = SPANS.full_name(settings.topic_prefix)
    return {each.partition: each.offset for each in answer.topic_partitions or [] if each.topic == name}


def copies(settings: Settings) -> Counter[tuple[str, int]]:
    """Attempt and revision -> how many records of it there are."""
    records = TopicReader(settings, TRAJECTORIES).read_to_end()
    return Counter((one.attempt_id, one.revision) for one in records if isinstance(one, Trajectory))


def state_count(settings: Settings) -> int:
    return sum(isinstance(one, RolloutState) for one in TopicReader(settings, ROLLOUTS).read_to_end())


@pytest.fixture
def feeder(settings: Settings) -> Iterator[Feeder]:
    with closing(Feeder(settings)) as feeder:
        yield feeder


def test_only_open_attempts_come_out_again(settings: Settings, feeder: Feeder) -> None:
    """Twice: the second time the worker goes on by what it wrote after the first."""
    done, still_open = [f"done{number}" for number in range(40)], ["open1", "open2", "open3"]
    with WorkerProcess(settings) as worker:
        feeder.open([*done[:20], *still_open], calls=1)
        feeder.call(done[:20], range(1, 2))
        feeder.end(done[:20])
        feeder.wait_for_trajectories(done[:20])
        feeder.open(done[20:])
        feeder.end(done[20:])
        feeder.wait_for_trajectories(done)
        for _ in range(2):
            states = state_count(settings)
            worker.terminate()
            forget_offsets(settings)
            worker.start()
            eventually(lambda: len(committed(settings)) == settings.topic_partitions, what="offsets are there again")
            assert state_count(settings) == states
        feeder.call(still_open, range(1, 2))
        feeder.end(still_open)
        check(feeder.wait_for_trajectories([*done, *still_open]), [*done, *still_open], calls=2)
    assert set(copies(settings).values()) == {1}
    assert "the group has no offset for partition" in worker.output


def test_a_group_that_never_was_reads_all(settings: Settings, feeder: Feeder) -> None:
    """Nothing was written, so nothing is passed over."""
    with WorkerProcess(settings) as worker:
        feeder.open(["a"])
        worker.terminate()
        forget_offsets(settings)
        worker.start()
        feeder.end(["a"])
        check(feeder.wait_for_trajectories(["a"]), ["a"], calls=2)


@pytest.mark.soak
@pytest.mark.parametrize("round_number", range(3))
def test_three_brokers_three_workers_kills_and_lost_offsets(tmp_path: Path, round_number: int) -> None:
    """Kills by seed while rollouts run; three times all workers stop, and the cluster forgets how far they were.

    What comes out is compared with what was sent. An attempt may have a second record for each kill or loss that fell
    between its trajectory and the commit, and never another one.
    """
    seed = SEED + round_number
    print(f"seed {seed} (set LIGHTSTREAM_TEST_SEED to repeat)")
    chance = random.Random(seed)
    settings = Settings.load(data_dir=tmp_path, brokers=3, topic_partitions=PARTITIONS)
    with ExitStack() as stack:
        brokers = stack.enter_context(EmbeddedBrokers(settings))
        settings = settings.model_copy(update={"kafka_bootstrap_servers": brokers.start()})
        create_topics(settings)
        workers = [
            stack.enter_context(WorkerProcess(settings.model_copy(update={"data_dir": folder})))
            for folder in _folders(tmp_path, 3)
        ]
        feeder = stack.enter_context(closing(Feeder(settings)))
        everything: list[str] = []
        held: list[str] = []
        repeated_max = 0
        for wave in range(9):
            names = [f"w{wave}-{number}" for number in range(40)]
            everything += names
            feeder.open(names)
            held += names[:5]  # stay open over what follows
            feeder.end(names[5:])
            if wave % 3 == 2:
                feeder.wait_for_trajectories([name for name in everything if name not in held])
                before = sum(copies(settings).values())
                for worker in workers:
                    worker.kill()
                forget_offsets(settings)
                for worker in workers:
                    worker.launch()
                feeder.open(probe := [f"p{wave}-{number}" for number in range(PARTITIONS)])
                feeder.end(probe)
                everything += probe
                feeder.wait_for_trajectories([name for name in everything if name not in held])
                repeated = sum(copies(settings).values()) - before - len(probe)
                repeated_max = max(repeated_max, repeated)
                feeder.end(held)
                held = []
            else:
                _kill_one(chance, workers, brokers.each)
        outcome = feeder.wait_for_trajectories(everything)
        check(outcome, everything, calls=2)
        print(f"{len(everything)} rollouts; at most {repeated_max} trajectories came again after a loss of offsets")
        assert repeated_max <= 3 * 5, "attempts that were not open came out again"


def _folders(parent: Path, count: int) -> list[Path]:
    folders = [parent / f"worker{number}" for number in range(count)]
    for folder in folders:
        folder.mkdir()
    return folders


def _kill_one(chance: random.Random, workers: list[WorkerProcess], brokers: list[EmbeddedBroker]) -> None:
    victim = chance.randrange(len(workers) + len(brokers))
    if victim < len(workers):
        print(f"kill -9 worker {victim}")
        workers[victim].kill()
        workers[victim].launch()
    else:
        broker = brokers[victim - len(workers)]
        print(f"kill -9 {broker.name}")
        broker.kill()
        broker.start()
