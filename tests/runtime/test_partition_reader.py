"""What is read of a partition, and that a broker's restart in the middle costs time alone."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from confluent_kafka import Message, Producer

from lightstream.broker import EmbeddedBroker
from lightstream.runtime.kafka import (
    KafkaPublisher,
    PartitionReader,
    joined_ranges,
    logged_unix_nano,
    partition_reader,
    partitions_of,
    producer_config,
    read_errors,
)
from lightstream.runtime.settings import Settings
from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.schemas.records import SpanRecord
from lightstream.schemas.topics import SPANS, TRAINING_STEPS
from tests.support.waiting import eventually

GROUP = "tests"
WAIT_S = 300.0
RECORDS, BATCH_RECORDS = 3_000, 100
"""Many batches, of which few are fetched ahead, so that most are still to come when the broker goes away."""
FEW_AHEAD = {"queued.min.messages": 1, "fetch.message.max.bytes": 1024}


def reader_of(
    settings: Settings, *, read_committed: bool = False, limits: dict[str, int] | None = None
) -> PartitionReader:
    return PartitionReader(settings, SPANS, 1, group_id=GROUP, read_committed=read_committed, limits=limits)


def publish(settings: Settings, count: int) -> None:
    """Spans that are named by their offsets."""
    publisher = KafkaPublisher(settings)
    for number in range(count):
        span = SpanRecord(trace_id="0" * 32, span_id="1" * 16, name=str(number))
        publisher.publish(SPANS, "key", span, partition=1)
        if number % BATCH_RECORDS == 0:
            assert publisher.flush(300) == 0
    assert publisher.flush(300) == 0
    publisher.close()


def offsets_of(messages: Sequence[Message]) -> list[int]:
    return [message.offset() or 0 for message in messages]


def names_of(messages: Sequence[Message]) -> list[str]:
    decoded = [Codec().decode(message.value()) for message in messages]
    return [record.name for record in decoded if isinstance(record, SpanRecord)]


def test_ranges_records_and_times(settings: Settings) -> None:
    reader = reader_of(settings)
    assert (reader.watermarks(), list(reader.records())) == ((0, 0), [])
    assert reader.first_logged_at(1) == 0
    publish(settings, 10)
    everything = list(reader.records())
    assert names_of(everything) == [str(number) for number in range(10)]
    assert reader.watermarks() == (0, 10)
    assert offsets_of(list(reader.records(7))) == [7, 8, 9]
    assert offsets_of(list(reader.ranges([(1, 2), (5, 5), (8, 100), (200, 300)]))) == [1, 2, 5, 8, 9]
    assert list(reader.ranges([])) == []
    stopped = threading.Event()
    stopped.set()
    assert list(reader.ranges([(0, 9)], stopped)) == []
    stamps = [logged_unix_nano(message) for message in everything]
    assert reader.first_logged_at(stamps[4]) == stamps.index(stamps[4])
    assert reader.first_logged_at(stamps[-1] + 10**9) == 10
    assert reader.first_logged_at(0) == 0


def test_with_read_committed_the_log_ends_where_a_transaction_is_open(settings: Settings) -> None:
    """And what was aborted is not there, though it has offsets."""
    topic = SPANS.full_name(settings.topic_prefix)
    producer = Producer(producer_config(settings, linger_ms=0) | {"transactional.id": topic})
    producer.init_transactions(60)

    def write(value: bytes) -> None:
        producer.begin_transaction()
        producer.produce(topic, value=value, partition=1)
        assert producer.flush(300) == 0

    write(b"committed")
    producer.commit_transaction(60)
    write(b"aborted")
    producer.abort_transaction(60)
    reader = reader_of(settings, read_committed=True)
    assert [message.value() for message in reader.records()] == [b"committed"]
    write(b"open")
    assert [message.value() for message in reader.records()] == [b"committed"]
    assert [message.value() for message in reader_of(settings).records()] == [b"committed", b"aborted", b"open"]
    producer.commit_transaction(60)  # returns before the partition has the marker
    eventually(lambda: reader.watermarks()[1] == 6)
    assert [message.value() for message in reader.records()] == [b"committed", b"open"]


def test_the_partitions_are_those_of_the_cluster(settings: Settings) -> None:
    assert partitions_of(settings.model_copy(update={"topic_partitions": 7}), SPANS) == [0, 1]
    assert partitions_of(settings, TRAINING_STEPS) == [0]
    elsewhere = settings.model_copy(update={"topic_prefix": "elsewhere."})
    with pytest.raises(ServiceUnavailableError, match=r"elsewhere\.spans.*lightstream topics create"):
        partitions_of(elsewhere, SPANS)


def test_small_gaps_between_ranges_are_read_over() -> None:
    assert joined_ranges([]) == []
    assert joined_ranges([(5_000, 5_001), (0, 0), (1_000, 1_000), (4_000, 6_000)]) == [(0, 1_000), (4_000, 6_000)]


def test_a_restart_of_the_broker_is_waited_for(
    private_broker: EmbeddedBroker, private_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of a range, and by who asks while the broker is away."""
    monkeypatch.setattr(read_errors, "PATIENCE_S", WAIT_S)
    monkeypatch.setattr(partition_reader, "STALL_TIMEOUT_S", WAIT_S)
    publish(private_settings, RECORDS)
    for stop, read_committed in ((private_broker.stop, True), (private_broker.kill, False)):
        reader = reader_of(private_settings, read_committed=read_committed, limits=FEW_AHEAD)
        with closing(reader.records()) as messages, ThreadPoolExecutor() as threads:
            read = [next(messages)]
            stop()
            asked = threads.submit(reader.watermarks), threads.submit(partitions_of, private_settings, SPANS)
            started = threads.submit(private_broker.start)
            read += messages
            started.result()
        assert offsets_of(read) == list(range(RECORDS))
        assert names_of(read) == [str(number) for number in range(RECORDS)]
        assert [answer.result() for answer in asked] == [(0, RECORDS), [0, 1]]
