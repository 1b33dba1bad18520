"""Late spans on a real Kafka: what is read back of the log, what is held, and a kill in between."""

from __future__ import annotations

import random
from contextlib import closing
from dataclasses import replace

import pytest
from confluent_kafka import Consumer, TopicPartition

from lightstream.runtime.kafka import KafkaPublisher, PartitionReader, consumer_config
from lightstream.runtime.settings import Settings
from lightstream.schemas.records import AttemptClosed, AttemptOpened, SpanRecord, Trajectory
from lightstream.schemas.topics import SPANS, TRAJECTORIES
from lightstream.stream_processors.core.assembly import Assembler, AssemblyRules, LateSpan
from lightstream.stream_processors.worker.deferred_assembly import LateSpanReader
from lightstream.stream_processors.worker.log_reader import LogReader
from tests.stream_processors.assembly.build import closed, opened, proxy_span, reward_span
from tests.support.waiting import eventually

from .harness import CODEC, TopicReader, WorkerProcess

WAIT_S = 300.0
EVER_S = 1e10
"""The attempts of these tests began in 1970."""
AnyRecord = SpanRecord | AttemptOpened | AttemptClosed


def publish(settings: Settings, records: list[AnyRecord]) -> list[tuple[AnyRecord, int]]:
    """Write to ``spans``; each record with its offset."""
    publisher = KafkaPublisher(settings, linger_ms=0.0)
    with closing(publisher):
        places = [publisher.publish(SPANS, rollout_of(record), record) for record in records]
        return [(record, place.result(WAIT_S).offset) for record, place in zip(records, places, strict=True)]


def rollout_of(record: AnyRecord) -> str:
    return record.rollout.rollout_id if isinstance(record, AttemptOpened) else record.rollout_id or ""


def wait_for(reader: TopicReader, rollout_id: str, revision: int) -> Trajectory:
    def found() -> list[Trajectory]:
        made = [r for r in reader.poll() if isinstance(r, Trajectory) and r.rollout_id == rollout_id]
        return [t for t in made if t.revision == revision]

    return eventually(found, timeout_s=WAIT_S, what=f"revision {revision} of {rollout_id}")[0]


def committed_everywhere(settings: Settings) -> bool:
    with closing(
        Consumer(consumer_config(settings, group_id=f"{settings.topic_prefix}lightstream-worker"))
    ) as consumer:
        for partition in range(settings.topic_partitions):
            place = TopicPartition(SPANS.full_name(settings.topic_prefix), partition)
            _, end = PartitionReader(settings, SPANS, partition, group_id="tests").watermarks()
            (committed,) = consumer.committed([place], timeout=30)
            if max(committed.offset, 0) < end:
                return False
    return True


@pytest.fixture
def patient(settings: Settings) -> Settings:
    return settings.model_copy(update={"late_span_s_max": EVER_S})


def test_late_spans_revise_before_and_after_a_kill(patient: Settings) -> None:
    settings = patient
    trajectories = TopicReader(settings, TRAJECTORIES)
    stranger = proxy_span(8, rollout_id="nobody")
    with WorkerProcess(settings) as worker:
        publish(settings, [opened(), proxy_span(1), proxy_span(2), closed()])
        first = wait_for(trajectories, "r1", 0)
        publish(settings, [reward_span(3, 0.5)])
        second = wait_for(trajectories, "r1", 1)
        assert (first.reward, second.reward) == (None, 0.5)
        assert [t.response_id for t in second.triplets] == ["resp-1", "resp-2"]
        eventually(lambda: committed_everywhere(settings), timeout_s=WAIT_S, what="all is committed")
        worker.kill()
        publish(settings, [proxy_span(4), stranger, opened("r2")])
        worker.start()
        third = wait_for(trajectories, "r1", 2)
        assert [t.response_id for t in third.triplets] == ["resp-1", "resp-2", "resp-4"]
        assert [t.reward for t in third.triplets] == [0.5] * 3
        publish(settings, [reward_span(5, 1.0), closed("r2")])
        assert wait_for(trajectories, "r1", 3).reward == 1.0
        publish(settings, [proxy_span(6, rollout_id="r2")])  # held by now
        assert wait_for(trajectories, "r2", 1).call_count == 1
        eventually(lambda: committed_everywhere(settings), timeout_s=WAIT_S, what="nothing is held back any more")
        assert worker.terminate() == 0
        assert "Traceback" not in worker.output


@pytest.mark.parametrize("seed", range(3))
def test_what_is_read_back_is_what_memory_would_have_made(settings: Settings, seed: int) -> None:
    draw = random.Random(seed)
    stories: list[list[AnyRecord]] = []
    for number in range(4):
        name = f"r{number}"
        spans = [proxy_span(n, rollout_id=name) for n in range(1, draw.randint(2, 6))]
        late = [*(reward_span(n, float(n), rollout_id=name) for n in range(7, 10)), spans[0]]
        stories.append([opened(name), opened(name), *spans, closed(name), *draw.sample(late, draw.randint(1, 4))])
    records: list[AnyRecord] = []
    while stories:
        records.append(draw.choice(stories).pop(0))
        stories = [story for story in stories if story]
    publish(settings, records)
    for partition in range(settings.topic_partitions):
        reader = LogReader(settings, "tests", SPANS, partition)
        log = [
            (record, message.offset() or 0)
            for message in reader.records()
            if isinstance(record := CODEC.decode(message.value()), SpanRecord | AttemptOpened | AttemptClosed)
        ]
        compare(log, reader, partition)


def compare(log: list[tuple[AnyRecord, int]], reader: LogReader, partition: int) -> None:
    """Read every attempt back, from where it is known to lie, and by searching for it."""
    rules = AssemblyRules(late_span_s_max=EVER_S)

    async def send(trajectories: object) -> None:
        raise AssertionError(trajectories)

    late = LateSpanReader(reader, CODEC, partition, rules, send)
    memory = Assembler(partition, rules)
    wanted = {t.rollout_id: t for t in memory.on_records(log) if t.revision}
    forgetful = Assembler(partition, rules, kept_spans_max=0, reads_back=True)
    forgetful.on_records(log)
    known = forgetful.take_to_read()
    assert {span.key[0] for span in known} >= set(wanted)
    unknown = [LateSpan(span.key, span.offset, 2 * 10**18, None) for span in known]
    never = LateSpan(("never", "never-a1"), 10**6, 2 * 10**18, None)
    places = late.search([*unknown, never], 2 * 10**18)
    assert never.key not in places
    found = [replace(span, ranges=places[span.key]) for span in unknown]
    for spans in (known, found):
        assert {t.rollout_id: t for t in late.read_back(spans)} == wanted
