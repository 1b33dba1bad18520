"""Killed and stopped workers, and killed brokers: nothing is lost, nothing is wrong, nothing stands still."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import pytest
from confluent_kafka import Consumer, TopicPartition

from lightstream.broker import EmbeddedBroker
from lightstream.broker.config import BrokerFiles
from lightstream.runtime.files import read_number
from lightstream.runtime.kafka import KafkaPublisher, PartitionReader, consumer_config
from lightstream.runtime.services import find
from lightstream.runtime.settings import Settings
from lightstream.schemas.records import (
    AttemptClosed,
    EventKind,
    RolloutChanges,
    RolloutEvent,
    RolloutState,
    RolloutStatus,
    Trajectory,
)
from lightstream.schemas.topics import ROLLOUT_EVENTS, ROLLOUTS, SPANS, TRAJECTORIES
from tests.support.waiting import eventually

from .harness import CODEC, TopicReader, WorkerProcess, ended, enqueued, span, started

WAIT_S = 600.0
SEED = int(os.environ.get("LIGHTSTREAM_TEST_SEED", str(time.time_ns() % 10_000)))
"""Printed with every test; set the variable to see the same run again."""


@dataclass
class Outcome:
    """What came out for each rollout, repeats collapsed by identity."""

    states: dict[str, RolloutState]
    trajectories: dict[str, list[Trajectory]]
    finals: Counter[str]


class Feeder:
    """Runs rollouts as a Runner would: each event waits for its verdict, spans are durable before the end."""

    def __init__(self, settings: Settings) -> None:
        self._publisher = KafkaPublisher(settings, linger_ms=0.0)
        self._states = TopicReader(settings, ROLLOUTS)
        self._trajectories = TopicReader(settings, TRAJECTORIES)
        self._spans = TopicReader(settings, SPANS)

    def open(self, rollout_ids: list[str], *, calls: int = 2) -> None:
        """Enqueue, start, and send the first calls of all."""
        for rollout_id in rollout_ids:
            self._publisher.publish(ROLLOUT_EVENTS, rollout_id, enqueued(rollout_id))
        self._wait_for({f"{rollout_id}:enqueued" for rollout_id in rollout_ids})
        for rollout_id in rollout_ids:
            self._publisher.publish(ROLLOUT_EVENTS, rollout_id, started(rollout_id))
        self._wait_for({f"{rollout_id}-a1:started" for rollout_id in rollout_ids})
        self.call(rollout_ids, range(calls))

    def call(self, rollout_ids: list[str], numbers: range) -> None:
        for rollout_id in rollout_ids:
            for number in numbers:
                self._publisher.publish(SPANS, rollout_id, span(rollout_id, number))
        assert self._publisher.flush(WAIT_S) == 0

    def end(self, rollout_ids: list[str]) -> None:
        for rollout_id in rollout_ids:
            self._publisher.publish(ROLLOUT_EVENTS, rollout_id, ended(rollout_id))
        assert self._publisher.flush(WAIT_S) == 0

    def wait_for_trajectories(self, rollout_ids: list[str]) -> Outcome:
        wanted = set(rollout_ids)

        def there() -> set[str]:
            return wanted - {t.rollout_id for t in self._trajectories.poll() if isinstance(t, Trajectory)}

        eventually(lambda: not there(), timeout_s=WAIT_S, what="all trajectories")
        self._wait_for({f"{rollout_id}-a1:ended" for rollout_id in rollout_ids})
        states = [s for s in self._states.read_to_end() if isinstance(s, RolloutState)]
        found: dict[str, list[Trajectory]] = {rollout_id: [] for rollout_id in rollout_ids}
        for trajectory in self._trajectories.read_to_end():
            if isinstance(trajectory, Trajectory) and trajectory not in found[trajectory.rollout_id]:
                found[trajectory.rollout_id].append(trajectory)
        closings = {CODEC.encode(c) for c in self._spans.read_to_end() if isinstance(c, AttemptClosed) and c.final}
        finals = Counter(c.rollout_id for c in map(CODEC.decode, closings) if isinstance(c, AttemptClosed))
        return Outcome({s.rollout.rollout_id: s for s in states}, found, finals)

    def close(self) -> None:
        self._publisher.close()

    def _wait_for(self, event_ids: set[str]) -> None:
        def missing() -> set[str]:
            return event_ids - {s.verdict.event_id for s in self._states.poll() if isinstance(s, RolloutState)}

        eventually(lambda: not missing(), timeout_s=WAIT_S, what="all verdicts")
        verdicts = [s.verdict for s in self._states.records if isinstance(s, RolloutState)]
        assert {v.outcome.value for v in verdicts if v.event_id in event_ids} == {"applied"}


def check(outcome: Outcome, rollout_ids: list[str], calls: int) -> None:
    """Every rollout succeeded once, with every call in its one final trajectory."""
    for rollout_id in rollout_ids:
        assert outcome.states[rollout_id].status == "succeeded"
        assert outcome.finals[rollout_id] == 1
        (trajectory,) = outcome.trajectories[rollout_id]
        assert trajectory.final
        assert [t.response_id for t in trajectory.triplets] == [f"{rollout_id}-{n}" for n in range(calls)]
        assert trajectory.drops == []


@pytest.fixture
def feeder(settings: Settings) -> Iterator[Feeder]:
    with closing(Feeder(settings)) as feeder:
        yield feeder


def test_a_kill_with_open_attempts_loses_nothing(settings: Settings, feeder: Feeder) -> None:
    done, in_the_middle, ends_meanwhile = ["done"], ["open1", "open2"], ["dark1", "dark2"]
    everything = [*done, *in_the_middle, *ends_meanwhile]
    with WorkerProcess(settings) as worker:
        feeder.open(everything)
        feeder.call(done, range(2, 3))
        feeder.end(done)
        feeder.wait_for_trajectories(done)
        worker.kill()
        feeder.call(ends_meanwhile, range(2, 3))
        feeder.end(ends_meanwhile)
        worker.start()
        feeder.call(in_the_middle, range(2, 3))
        feeder.end(in_the_middle)
        check(feeder.wait_for_trajectories(everything), everything, 3)


@pytest.mark.parametrize(
    ("rollouts", "kills"), [(60, 3), pytest.param(2000, 40, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])]
)
def test_kills_at_random_moments_lose_nothing(settings: Settings, feeder: Feeder, rollouts: int, kills: int) -> None:
    print(f"LIGHTSTREAM_TEST_SEED={SEED}")
    chance = random.Random(SEED)
    rollout_ids = [f"r{i}" for i in range(rollouts)]
    over = threading.Event()
    with WorkerProcess(settings) as worker:

        def disturb() -> None:
            for _ in range(kills):
                if over.wait(chance.uniform(0.0, 2.0)):
                    return
                worker.kill()
                worker.launch()
                eventually(lambda: find(settings, "worker") is not None, timeout_s=WAIT_S)

        disturber = threading.Thread(target=disturb)
        disturber.start()
        try:
            for begin in range(0, len(rollout_ids), 10):
                some = rollout_ids[begin : begin + 10]
                feeder.open(some)
                feeder.call(some, range(2, 4))
                feeder.end(some)
            outcome = feeder.wait_for_trajectories(rollout_ids)
        finally:
            over.set()
            disturber.join()
    check(outcome, rollout_ids, 4)


def test_rollouts_go_back_into_the_queue_after_their_end_whatever_is_killed(settings: Settings, feeder: Feeder) -> None:
    """Their ends are in the worker's file of finished rollouts by then."""
    rollout_ids = ["r0", "r1", "r2"]
    publisher, states = KafkaPublisher(settings, linger_ms=0.0), TopicReader(settings, ROLLOUTS)
    trajectories = TopicReader(settings, TRAJECTORIES)

    def until(event_id: str) -> RolloutState:
        def there() -> list[RolloutState]:
            return [s for s in states.poll() if isinstance(s, RolloutState) and s.verdict.event_id == event_id]

        return eventually(there, timeout_s=WAIT_S, what=event_id)[-1]

    with WorkerProcess(settings) as worker:
        feeder.open(rollout_ids)
        feeder.end(rollout_ids)
        feeder.wait_for_trajectories(rollout_ids)
        assert worker.terminate() == 0
        worker.start()
        for rollout_id in rollout_ids:
            publisher.publish(ROLLOUT_EVENTS, rollout_id, requeued(rollout_id))
            assert until(f"{rollout_id}:requeued").status == "requeuing"
        worker.kill()
        worker.start()
        for rollout_id in rollout_ids:
            publisher.publish(ROLLOUT_EVENTS, rollout_id, started(rollout_id, 2))
            assert until(f"{rollout_id}-a2:started").status == "preparing"
            publisher.publish(SPANS, rollout_id, span(rollout_id, 7, 2))
        assert publisher.flush(WAIT_S) == 0
        worker.kill()
        worker.start()
        for rollout_id in rollout_ids:
            publisher.publish(ROLLOUT_EVENTS, rollout_id, ended(rollout_id, 2))
            assert until(f"{rollout_id}-a2:ended").status == "succeeded"

        def finals() -> set[tuple[str, int, int]]:
            found = [t for t in trajectories.poll() if isinstance(t, Trajectory) and t.final]
            return {(t.rollout_id, t.attempt_sequence, len(t.triplets)) for t in found}

        expected = {(rollout_id, *made) for rollout_id in rollout_ids for made in ((1, 2), (2, 1))}
        eventually(lambda: finals() == expected, timeout_s=WAIT_S, what="both trajectories of each")
    publisher.close()


def requeued(rollout_id: str) -> RolloutEvent:
    """Somebody puts it back into the queue."""
    return RolloutEvent(
        event_id=f"{rollout_id}:requeued",
        kind=EventKind.ROLLOUT_UPDATED,
        rollout_id=rollout_id,
        occurred_unix_nano=time.time_ns(),
        rollout_changes=RolloutChanges(fields=["status"], status=RolloutStatus.REQUEUING),
    )


def test_a_time_out_that_fell_due_while_the_worker_was_down_is_noticed_without_traffic(
    settings: Settings, feeder: Feeder
) -> None:
    publisher = KafkaPublisher(settings, linger_ms=0.0)
    states = TopicReader(settings, ROLLOUTS)
    with WorkerProcess(settings) as worker:
        publisher.publish(ROLLOUT_EVENTS, "idle", enqueued("idle", timeout_seconds=3.0))
        publisher.publish(ROLLOUT_EVENTS, "idle", started("idle"))
        states.wait_for(2)
        worker.kill()
        worker.start()
        last = states.wait_for(3)[-1]
    publisher.close()
    assert isinstance(last, RolloutState)
    assert last.status == "failed"
    assert last.attempts[0].status == "timeout"


def test_a_second_worker_takes_over_from_a_killed_one(settings: Settings, feeder: Feeder) -> None:
    rollout_ids = [f"r{i}" for i in range(12)]
    elsewhere = settings.model_copy(update={"data_dir": settings.data_dir / "elsewhere"})
    with WorkerProcess(settings) as first:
        elsewhere.data_dir.mkdir()
        feeder.open(rollout_ids)
        with WorkerProcess(elsewhere):
            first.kill()
            feeder.call(rollout_ids, range(2, 3))
            feeder.end(rollout_ids)
            check(feeder.wait_for_trajectories(rollout_ids), rollout_ids, 3)


def test_sigterm_commits_and_ends_cleanly(settings: Settings, feeder: Feeder) -> None:
    with WorkerProcess(settings) as worker:
        feeder.open(["r"])
        feeder.end(["r"])
        feeder.wait_for_trajectories(["r"])
        assert worker.terminate() == 0
        assert "Traceback" not in worker.output
    assert find(settings, "worker") is None
    consumer = Consumer(consumer_config(settings, group_id=f"{settings.topic_prefix}lightstream-worker"))
    with closing(consumer):
        for topic in (ROLLOUT_EVENTS, SPANS):
            for partition in range(settings.topic_partitions):
                place = TopicPartition(topic.full_name(settings.topic_prefix), partition)
                _, end = PartitionReader(settings, topic, partition, group_id="tests").watermarks()
                (committed,) = consumer.committed([place], timeout=30)
                assert max(committed.offset, 0) == end


def test_a_worker_rides_out_a_killed_broker(private_broker: EmbeddedBroker, private_settings: Settings) -> None:
    rollout_ids = [f"r{i}" for i in range(20)]
    with WorkerProcess(private_settings) as worker, closing(Feeder(private_settings)) as feeder:
        feeder.open(rollout_ids)
        private_broker.kill()
        private_broker.start()
        feeder.call(rollout_ids, range(2, 3))
        feeder.end(rollout_ids)
        check(feeder.wait_for_trajectories(rollout_ids), rollout_ids, 3)
        assert worker.terminate() == 0


def test_a_worker_killed_while_its_broker_starts_again(
    private_broker: EmbeddedBroker, private_settings: Settings
) -> None:
    """The worst of moments: the first attempts are closed, the others' ends lie in the log, not all states are out."""
    rollout_ids = [f"r{i}" for i in range(40)]
    pid_file = BrokerFiles.of(private_settings).pid
    with WorkerProcess(private_settings) as worker, closing(Feeder(private_settings)) as feeder:
        feeder.open(rollout_ids)
        marks = TopicReader(private_settings, SPANS)
        feeder.end(rollout_ids)
        eventually(lambda: any(isinstance(mark, AttemptClosed) for mark in marks.poll()), what="a closed attempt")
        private_broker.kill()
        before = read_number(pid_file)
        restart = threading.Thread(target=private_broker.start)
        restart.start()
        eventually(lambda: read_number(pid_file) not in (None, before), timeout_s=WAIT_S, what="the broker's process")
        assert worker.alive
        worker.kill()
        restart.join()
        worker.start()
        check(feeder.wait_for_trajectories(rollout_ids), rollout_ids, 2)
        assert worker.terminate() == 0


def test_without_kafka_the_worker_ends_and_says_so(tmp_path_factory: pytest.TempPathFactory) -> None:
    nowhere = Settings.load(kafka_bootstrap_servers="127.0.0.1:1", data_dir=tmp_path_factory.mktemp("nowhere"))
    worker = WorkerProcess(nowhere)
    worker.launch()
    assert worker.wait() != 0
    assert "127.0.0.1:1" in worker.output


def test_without_topics_the_worker_ends_and_says_so(
    kafka_servers: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    bare = Settings.load(
        kafka_bootstrap_servers=kafka_servers, topic_prefix="nothing.", data_dir=tmp_path_factory.mktemp("bare")
    )
    worker = WorkerProcess(bare)
    worker.launch()
    assert worker.wait() != 0
    assert "lightstream topics create" in worker.output
