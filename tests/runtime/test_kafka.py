"""Publisher, topics and partitions, on a real broker."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer  # type: ignore[import-untyped]  # no type information
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from lightstream.runtime.kafka import (
    KafkaPublisher,
    Outgoing,
    Position,
    bootstrap_servers,
    consumer_config,
    create_topics,
    kafka_unavailable,
)
from lightstream.runtime.kafka import admin as topics_admin
from lightstream.runtime.kafka.connect import connected
from lightstream.runtime.settings import Settings
from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import PublishError, RecordTooLargeError, ServiceUnavailableError, TopicMismatchError
from lightstream.schemas.examples import EXAMPLES
from lightstream.schemas.records import LlmCall, Record, SpanRecord
from lightstream.schemas.topics import DEAD_LETTERS, SPANS, TOPICS, topic_named
from tests.support.waiting import eventually

SPAN = SpanRecord(trace_id="0" * 32, span_id="1" * 16, name="n")


def read(settings: Settings, position: Position) -> Record:
    """The record at a position."""
    consumer = Consumer(consumer_config(settings, group_id=f"test-{uuid.uuid4().hex}"))
    topic = topic_named(position.topic).full_name(settings.topic_prefix)
    consumer.assign([TopicPartition(topic, position.partition, position.offset)])
    try:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        assert message.offset() == position.offset
        return Codec().decode(message.value())
    finally:
        consumer.close()


def test_an_acknowledged_record_is_in_the_log(settings: Settings) -> None:
    publisher = KafkaPublisher(settings)
    for topic in TOPICS:
        for record in (example for example in EXAMPLES if type(example) in topic.records):
            position = publisher.publish(topic, "key", record).result(300)
            assert read(settings, position) == record
    assert publisher.close() == 0


def test_a_20_mb_record_passes(settings: Settings) -> None:
    prompt = os.urandom(10_000_000).hex()
    big = SPAN.model_copy(update={"llm_call": LlmCall(request_json=prompt)})
    publisher = KafkaPublisher(settings)
    assert read(settings, publisher.publish(SPANS, "key", big).result(300)) == big
    publisher.close()


def test_a_record_over_the_limit_is_refused_and_the_next_passes(settings: Settings) -> None:
    small = Settings.load(**{**settings.model_dump(), "record_bytes_max": 2**20})
    publisher = KafkaPublisher(small)
    with pytest.raises(RecordTooLargeError) as caught:
        publisher.publish(SPANS, "key", SPAN.model_copy(update={"name": "x" * 2**20}))
    assert caught.value.size_bytes > caught.value.limit_bytes
    assert "LIGHTSTREAM_RECORD_BYTES_MAX" in caught.value.next_step
    assert publisher.publish(SPANS, "key", SPAN).result(300).offset >= 0
    publisher.close()


@pytest.mark.parametrize(
    ("why", "message", "step"),
    [
        (KafkaException(KafkaError(KafkaError._TRANSPORT)), "Kafka does not answer", "BOOTSTRAP_SERVERS"),
        (
            KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)),
            "TOPIC_AUTHORIZATION_FAILED",
            "the rights to",
        ),
        (TimeoutError(), "no answer in time", "BOOTSTRAP_SERVERS"),
        ("no record for 60 s", "no record for 60 s", "BOOTSTRAP_SERVERS"),
    ],
)
def test_where_kafka_fails_the_error_says_what_to_do(why: object, message: str, step: str) -> None:
    error = kafka_unavailable(why)
    assert message in error.message
    assert step in error.next_step


def test_a_record_that_cannot_become_durable_fails_its_future(tmp_path: Path) -> None:
    nowhere = Settings.load(kafka_bootstrap_servers="127.0.0.1:9", data_dir=tmp_path, publish_timeout_s=1.0)
    publisher = KafkaPublisher(nowhere)
    with pytest.raises(PublishError, match="'spans' did not become durable"):
        publisher.publish(SPANS, "key", SPAN).result(300)
    publisher.close(0)


def test_what_is_not_durable_at_the_end_is_told_and_nothing_is_taken_after_it(tmp_path: Path) -> None:
    nowhere = Settings.load(kafka_bootstrap_servers="127.0.0.1:9", data_dir=tmp_path)
    publisher = KafkaPublisher(nowhere)
    waiting = [publisher.publish(SPANS, "key", SPAN) for _ in range(3)]
    assert publisher.close(0.0) == 3
    for future in waiting:
        with pytest.raises(PublishError, match="'spans' did not become durable"):
            future.result(0)
    with pytest.raises(ServiceUnavailableError, match="closed"):
        publisher.publish(SPANS, "key", SPAN)
    assert publisher.close() == 0


def test_what_is_sent_is_reported_once_as_durable_or_as_lost(settings: Settings, tmp_path: Path) -> None:
    durable: list[PublishError | None] = []
    publisher = KafkaPublisher(settings)
    for _ in range(100):
        publisher.send(SPANS, "key", SPAN, durable.append)
    assert publisher.flush(300) == 0
    eventually(lambda: len(durable) == 100)
    assert durable == [None] * 100
    publisher.close()
    nowhere = Settings.load(kafka_bootstrap_servers="127.0.0.1:9", data_dir=tmp_path, publish_timeout_s=1.0)
    lost: list[PublishError | None] = []
    publisher = KafkaPublisher(nowhere)
    publisher.send(SPANS, "key", SPAN, lost.append)
    eventually(lambda: len(lost) == 1)
    assert "'spans' did not become durable" in str(lost[0])
    publisher.close(0)


def test_what_is_handed_over_in_a_row_is_told_of_in_its_order(settings: Settings) -> None:
    codec = Codec()
    spans = [SPAN.model_copy(update={"name": f"span {number}"}) for number in range(20)]
    publisher = KafkaPublisher(settings, linger_ms=0.0)
    outgoing = [Outgoing(SPANS, f"key {number % 7}", codec.encode(span)) for number, span in enumerate(spans)]
    for number in (5, 11, 12):
        outgoing[number] = outgoing[number]._replace(headers=[("state", b"x")])
    outgoing[8] = outgoing[8]._replace(topic=DEAD_LETTERS)
    outgoing[15] = outgoing[15]._replace(partition=1)
    count, durable = publisher.publish_all(outgoing)
    assert count == 20
    assert [read(settings, position) for position in durable.result(300)] == spans
    assert [n for n, position in enumerate(durable.result()) if position.topic == DEAD_LETTERS.name] == [8]
    assert durable.result()[15].partition == 1
    publisher.close()


def test_each_record_of_a_row_is_told_of_as_durable(settings: Settings) -> None:
    value = Codec().encode(SPAN)
    told: list[tuple[int, PublishError | None]] = []
    publisher = KafkaPublisher(settings, linger_ms=0.0)
    outgoing = [Outgoing(SPANS, "key", value)] * 20

    def delivered(number: int) -> Callable[[PublishError | None], None]:
        return lambda error: told.append((number, error))

    assert publisher.send_all(outgoing, [delivered(number) for number in range(20)]) == 20
    eventually(lambda: len(told) == 20)
    assert told == [(number, None) for number in range(20)]
    publisher.close()


def test_a_record_that_the_client_refuses_is_lost_and_the_rest_of_its_row_is_not(settings: Settings) -> None:
    value = Codec().encode(SPAN)
    told: dict[int, PublishError | None] = {}
    publisher = KafkaPublisher(settings, linger_ms=0.0)
    publisher.publish(SPANS, "key", SPAN).result(300)  # from here on the client knows the partitions
    for count in (1, 3):
        told.clear()
        outgoing = [Outgoing(SPANS, "key", value, partition=99)] * count
        assert publisher.send_all(outgoing, [partial(told.__setitem__, number) for number in range(count)]) == count
        assert sorted(told) == list(range(count))
        assert all("Unknown partition" in str(error) for error in told.values())
    count, durable = publisher.publish_all([Outgoing(SPANS, "key", value, partition=part) for part in (0, 0, 99, 0)])
    assert count == 4
    with pytest.raises(PublishError, match="Unknown partition"):
        durable.result(300)
    publisher.close()


def test_a_row_with_a_record_over_the_limit_is_refused(settings: Settings) -> None:
    small = Settings.load(**{**settings.model_dump(), "record_bytes_max": 2**20})
    publisher = KafkaPublisher(small)
    with pytest.raises(RecordTooLargeError):
        publisher.publish_all([Outgoing(SPANS, "key", b"x"), Outgoing(SPANS, "key", bytes(2**20))])
    publisher.close()


def test_a_full_buffer_takes_the_first_and_the_loss_of_these_is_told_once(tmp_path: Path) -> None:
    nowhere = Settings.load(
        kafka_bootstrap_servers="127.0.0.1:9", data_dir=tmp_path, publish_timeout_s=1.0, send_buffer_bytes_max=2**20
    )
    publisher = KafkaPublisher(nowhere)
    count, durable = publisher.publish_all([Outgoing(SPANS, "key", bytes(2**18))] * 20)
    assert 0 < count < 20
    with pytest.raises(PublishError, match="'spans' did not become durable"):
        durable.result(300)
    publisher.close(0)


def test_a_fork_leaves_both_processes_with_a_working_publisher(settings: Settings) -> None:
    publisher = KafkaPublisher(settings)
    publisher.publish(SPANS, "parent", SPAN).result(300)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            publisher.publish(SPANS, "child", SPAN).result(300)
            status = publisher.close()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert publisher.publish(SPANS, "parent", SPAN).result(300).offset >= 1
    publisher.close()


def test_creating_topics_twice_changes_nothing(settings: Settings) -> None:
    assert create_topics(settings) == []


def test_a_topic_that_is_listed_after_its_deletion_is_created(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = connected(settings)
    client, _ = before
    name = SPANS.full_name(settings.topic_prefix)
    client.delete_topics([name])[name].result()
    assert eventually(lambda: name not in client.list_topics().topics, timeout_s=300)
    monkeypatch.setattr(topics_admin, "connected", lambda _settings: before)
    assert create_topics(settings) == [name]
    publisher = KafkaPublisher(settings)
    publisher.publish(SPANS, "key", SPAN).result(300)
    assert publisher.close() == 0


def test_a_topic_with_other_settings_is_reported_not_changed(settings: Settings) -> None:
    other = Settings.load(**{**settings.model_dump(), "topic_partitions": 3, "record_bytes_max": 2**24})
    with pytest.raises(TopicMismatchError) as caught:
        create_topics(other)
    assert caught.value.differences["partitions"] == ("3", "2")
    assert caught.value.differences["max.message.bytes"] == (str(2**24), str(2**25))
    assert create_topics(settings) == []


def test_all_clients_put_a_key_into_the_same_partition(settings: Settings) -> None:
    """librdkafka (as we set it) and aiokafka, which Faust uses, agree on 200 keys."""
    topic = SPANS.full_name(settings.topic_prefix)
    keys = [f"ro-{uuid.uuid4().hex}" for _ in range(200)]
    publisher = KafkaPublisher(settings)
    ours = [future.result(300).partition for future in [publisher.publish(SPANS, key, SPAN) for key in keys]]
    publisher.close()

    async def theirs() -> list[int]:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers(settings)) as producer:
            sent = [await producer.send(topic, b"x", key=key.encode()) for key in keys]
            return [(await future).partition for future in sent]

    assert ours == asyncio.run(theirs())
    assert set(ours) == {0, 1}
