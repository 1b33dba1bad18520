"""What a reader of topics tells a person: which topic, and what to do; and that what passes is waited for."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from lightstream.broker import EmbeddedBroker
from lightstream.runtime.kafka import (
    KafkaPublisher,
    TopicTail,
    common_config,
    create_topics,
    producer_config,
    read_errors,
)
from lightstream.runtime.settings import Settings
from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.schemas.records import SpanRecord
from lightstream.schemas.topics import SPANS, WORKERS
from tests.support.acl_broker import acl_broker, forbid_reading
from tests.support.waiting import eventually

GROUP = "tests"
POLL_S = 0.1


@pytest.fixture(scope="module")
def broker_with_acls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with acl_broker(tmp_path_factory.mktemp("acl")) as broker:
        yield broker


def publish(settings: Settings, *names: str) -> None:
    publisher = KafkaPublisher(settings)
    for name in names:
        publisher.publish(SPANS, "key", SpanRecord(trace_id="0" * 32, span_id="1" * 16, name=name), partition=1)
    assert publisher.flush(300) == 0
    publisher.close()


def read(tail: TopicTail, count: int) -> list[Message]:
    """The next records."""
    messages: list[Message] = []

    def enough() -> bool:
        messages.extend(tail.poll(POLL_S).records)
        return len(messages) >= count

    eventually(enough)
    return messages


def failure_of(tail: TopicTail) -> str:
    """What the tail raises, sooner or later."""

    def raised() -> str:
        try:
            tail.poll(POLL_S)
        except ServiceUnavailableError as error:
            return str(error)
        return ""

    return eventually(raised)


def delete(settings: Settings) -> None:
    name = SPANS.full_name(settings.topic_prefix)
    admin = AdminClient(common_config(settings))  # has to live until it has the answer
    admin.delete_topics([name])[name].result(300)
    eventually(lambda: name not in admin.list_topics(timeout=60).topics)


def test_records_come_in_order_and_the_end_is_told(settings: Settings) -> None:
    publish(settings, "a", "b", "c")
    name = SPANS.full_name(settings.topic_prefix)
    with closing(TopicTail(settings, [SPANS], group_id=GROUP)) as tail:
        assert tail.partitions() == {SPANS: [0, 1]}
        tail.follow(SPANS, {1: 1})
        records: list[Message] = []
        reached: list[tuple[str, int, int]] = []

        def at_end() -> bool:
            batch = tail.poll(POLL_S)
            records.extend(batch.records)
            reached.extend(batch.reached)
            return bool(reached)

        eventually(at_end)
        decoded = [tail.decode(Codec(), message) for message in records]
        assert [record.name for record in decoded if isinstance(record, SpanRecord)] == ["b", "c"]
        assert reached == [(name, 1, 3)]
        assert tail.end_offsets(SPANS, [0, 1]) == {0: 0, 1: 3}
        tail.follow(SPANS, {1: 0})
        assert [message.offset() for message in read(tail, 3)] == [0, 1, 2]
        assert tail.next_offsets(SPANS) == {1: 3}


def test_the_beginning_is_the_first_record_that_is_left(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    publish(settings, "a", "b", "c")
    place = TopicPartition(SPANS.full_name(settings.topic_prefix), 1, 2)
    admin = AdminClient(common_config(settings))  # has to live until it has the answer
    admin.delete_records([place])[place].result(300)
    with closing(TopicTail(settings, [SPANS], group_id=GROUP)) as tail:
        tail.follow(SPANS, dict.fromkeys((0, 1), OFFSET_BEGINNING))
        assert tail.next_offsets(SPANS) == {0: 0, 1: 2}, "before anything came"
        assert [message.offset() for message in read(tail, 1)] == [2]
    assert not any("offset reset" in record.getMessage() for record in caplog.records)


def test_a_reader_that_closes_waits_for_what_it_asked(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that came just then ended the process: librdkafka reads a null pointer."""
    asked: list[Future[Any]] = []

    describe = AdminClient.describe_topics

    def noting(admin: AdminClient, *arguments: Any, **options: Any) -> dict[str, Future[Any]]:
        answers = describe(admin, *arguments, **options)
        asked.extend(answers.values())
        return answers

    monkeypatch.setattr(AdminClient, "describe_topics", noting)
    for _ in range(20):
        with closing(TopicTail(settings, [SPANS], group_id=GROUP)) as tail:
            tail.partitions()
            tail.poll(0.0)
        assert all(answer.done() for answer in asked)
    assert len(asked) >= 40, "other clients of this process ask too"


def test_what_cannot_be_decoded_is_passed_over_counted_and_logged_with_its_place(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    name = SPANS.full_name(settings.topic_prefix)
    producer = Producer(producer_config(settings))
    for _ in range(2):
        producer.produce(name, value=b"no record", partition=1)
    assert producer.flush(300) == 0
    publish(settings, "good")
    with closing(TopicTail(settings, [SPANS], group_id=GROUP)) as tail:
        tail.follow(SPANS, {1: 0})
        records = [tail.decode(Codec(), message) for message in read(tail, 3)]
        assert [record.name for record in records if isinstance(record, SpanRecord)] == ["good"]
        assert (records[:2], tail.undecodable) == ([None, None], 2)
    (warning,) = [each.getMessage() for each in caplog.records if "no record of ours" in each.getMessage()]
    assert f"{name}[1] offset 0" in warning


def test_a_missing_topic_is_named_by_who_asks_for_partitions_and_by_who_only_follows(settings: Settings) -> None:
    elsewhere = settings.model_copy(update={"topic_prefix": "elsewhere."})
    wanted = r"the cluster has no topic 'elsewhere\.spans'.*lightstream topics create"
    with (
        closing(TopicTail(elsewhere, [SPANS], group_id=GROUP)) as tail,
        pytest.raises(ServiceUnavailableError, match=wanted),
    ):
        tail.partitions()
    with closing(TopicTail(elsewhere, [SPANS], group_id=GROUP)) as tail:
        tail.follow(SPANS, {0: 0})
        assert "'elsewhere.spans'" in failure_of(tail)


@pytest.mark.parametrize("made_again", [False, True])
def test_a_topic_that_is_deleted_while_it_is_followed_is_named(settings: Settings, made_again: bool) -> None:
    publish(settings, "a")
    with closing(TopicTail(settings, [SPANS, WORKERS], group_id=GROUP)) as tail:
        tail.partitions()
        tail.follow(SPANS, {1: 0})
        read(tail, 1)
        delete(settings)
        if made_again:
            create_topics(settings, [SPANS])
            publish(settings, "b", "c")
        failure = failure_of(tail)
    assert repr(SPANS.full_name(settings.topic_prefix)) in failure
    assert ("was deleted and made again" if made_again else "was deleted while it was read") in failure
    assert "start this process again" in failure.lower()


def test_who_may_not_read_a_topic_is_told_what_to_grant(broker_with_acls: EmbeddedBroker, tmp_path: Path) -> None:
    settings = Settings.load(kafka_bootstrap_servers=broker_with_acls.start(), data_dir=tmp_path)
    create_topics(settings)
    forbid_reading(settings, SPANS)
    with closing(TopicTail(settings, [SPANS], group_id=GROUP)) as tail:
        tail.follow(SPANS, {0: 0})
        assert "Grant READ on topic 'spans' to User:ANONYMOUS" in failure_of(tail)


def test_a_broker_that_is_away_is_waited_for_and_logged_once(
    private_broker: EmbeddedBroker,
    private_settings: Settings,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(read_errors, "QUIET_S", 20.0)  # a busy machine reports an error less often
    caplog.set_level(logging.WARNING)

    def said(words: str) -> int:
        return sum(words in each.getMessage() for each in caplog.records)

    publish(private_settings, "a")
    with closing(TopicTail(private_settings, [SPANS], group_id=GROUP)) as tail:
        tail.partitions()
        tail.follow(SPANS, {1: 0})
        read(tail, 1)
        private_broker.stop()
        eventually(lambda: (tail.poll(POLL_S), said("'spans' cannot be read"))[1])
        private_broker.start()
        eventually(lambda: (tail.poll(POLL_S), said("'spans' can be read again"))[1])
        publish(private_settings, "b")
        assert [message.offset() for message in read(tail, 1)] == [1]
    assert (said("'spans' cannot be read"), said("'spans' can be read again")) == (1, 1)
