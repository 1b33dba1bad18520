"""The log as rows, on a real Kafka: restarts, transactions, big and broken records."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from starlette.testclient import TestClient

from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]  # pyright: ignore[reportPrivateImportUsage]  # public, but missing in __all__  # isort: skip

from lightstream.broker import EmbeddedBroker
from lightstream.runtime.kafka import WRITER, KafkaPublisher, Position, common_config, create_topics, producer_config
from lightstream.runtime.settings import Settings
from lightstream.schemas.codec import Codec, codec, schema_versions
from lightstream.schemas.examples import EXAMPLES, example_of
from lightstream.schemas.packing import pack_int32
from lightstream.schemas.records import DeadLetter, ResourcesRecord, SpanRecord, WorkerHeartbeat
from lightstream.schemas.topics import DEAD_LETTERS, RESOURCES, SPANS, TOPICS, WORKERS
from lightstream.store_views.materialiser import Materialiser, ViewDatabase
from lightstream.store_views.materialiser.batch import RECORDS_PER_CHUNK, Batch
from lightstream.store_views.materialiser.batch_reader import BatchReader
from lightstream.store_views.materialiser.materialiser import READ_LATER_RECORDS
from lightstream.store_views.server import create_app
from tests.stream_processors.assembly.build import proxy_span
from tests.support.waiting import eventually

WAIT_S = 300.0


@contextmanager
def following(settings: Settings) -> Generator[Materialiser, None, None]:
    materialiser = Materialiser(settings)
    materialiser.start()
    try:
        yield materialiser
        assert materialiser.failure is None
    finally:
        materialiser.stop()


@pytest.fixture
def publisher(settings: Settings) -> Generator[KafkaPublisher, None, None]:
    kafka = KafkaPublisher(settings)
    yield kafka
    kafka.close()


def reflect(materialiser: Materialiser, *positions: Position) -> None:
    wanted: dict[tuple[str, int], int] = {}
    for place in positions:
        key = (place.topic, place.partition)
        wanted[key] = max(wanted.get(key, 0), place.offset + 1)
    assert materialiser.positions.wait_for(wanted, WAIT_S) == {}


def catch_up(materialiser: Materialiser) -> None:
    """Also what the view itself publishes meanwhile: dead letters."""
    for _ in range(2):
        assert materialiser.positions.wait_for(materialiser.end_offsets_now(), WAIT_S) == {}


def rows(materialiser: Materialiser, sql: str) -> list[tuple[Any, ...]]:
    return materialiser.database.cursor().execute(sql).fetchall()


def test_rows_wait_where_statements_have_taken_the_memory(
    settings: Settings, publisher: KafkaPublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = iter(range(3))
    append = ViewDatabase.append

    def without_memory(
        self: ViewDatabase, tables: dict[str, pa.Table], next_offsets: dict[tuple[str, int], int]
    ) -> None:
        if next(refused, None) is not None:
            raise duckdb.OutOfMemoryException("failed to offload data block")
        append(self, tables, next_offsets)

    monkeypatch.setattr(ViewDatabase, "append", without_memory)
    with following(settings) as view:
        reflect(view, publisher.publish(SPANS, "key", proxy_span(1)).result(WAIT_S))
        assert rows(view, "SELECT count(*) FROM spans_raw") == [(1,)]
        assert next(refused, None) is None


def test_every_record_is_reflected_and_a_restart_goes_on_where_it_was(
    settings: Settings, publisher: KafkaPublisher
) -> None:
    topic_of = {record: topic for topic in TOPICS for record in topic.records}
    written = [publisher.publish(topic_of[type(example)], "key", example).result(WAIT_S) for example in EXAMPLES]
    with following(settings) as view:
        reflect(view, *written)
        assert rows(view, "SELECT count(*) FROM spans_raw") == [(1,)]
        assert rows(view, "SELECT count(*) FROM offsets") == [(len(view.positions.snapshot()),)]
    later = publisher.publish(SPANS, "key", proxy_span(1)).result(WAIT_S)
    with following(settings) as view:
        reflect(view, later)
        assert rows(view, "SELECT count(*) FROM spans_raw") == [(2,)]
        assert rows(view, "SELECT log_partition, log_offset FROM spans_raw ORDER BY ALL DESC LIMIT 1") == [
            (later.partition, later.offset)
        ]
        catch_up(view)
        assert view.positions.snapshot() == view.end_offsets_now()
        assert rows(view, "SELECT count(*) FROM dead_letters") == [(1,)], "the example, nothing else"


def test_more_records_than_become_columns_at_once_are_all_there_in_their_order(
    settings: Settings, publisher: KafkaPublisher
) -> None:
    count = 2 * RECORDS_PER_CHUNK + 1
    sent = [publisher.publish(SPANS, "key", proxy_span(number)) for number in range(count)]
    with following(settings) as view:
        reflect(view, sent[-1].result(WAIT_S))
        found = rows(view, "SELECT span_id FROM spans_raw ORDER BY log_offset")
    assert found == [(proxy_span(number).span_id,) for number in range(count)]


def test_what_cannot_be_read_becomes_dead_letters_and_harms_nothing_beside_it(
    settings: Settings, publisher: KafkaPublisher
) -> None:
    codec = Codec()
    good = codec.encode(proxy_span(1))
    unknown = good[:2] + bytes(8) + good[10:]
    heartbeat = codec.encode(example_of(WorkerHeartbeat))
    broken = [b"", b"not avro", unknown, good[:-3], good + b"x", heartbeat]
    for value in (good, *broken, good):
        publisher.publish_encoded(SPANS, "key", value).result(WAIT_S)
    publisher.publish_encoded(DEAD_LETTERS, "key", b"not even this").result(WAIT_S)
    with following(settings) as view:
        catch_up(view)
        assert rows(view, "SELECT count(*) FROM spans_raw") == [(2,)]
        letters = rows(view, "SELECT origin_topic, reason, value, value_size FROM dead_letters ORDER BY ALL")
        assert sorted(letters) == sorted(
            [
                ("dead-letters", "not_avro", b"not even this", 13),
                ("spans", "not_avro", b"", 0),
                ("spans", "not_avro", b"not avro", 8),
                ("spans", "unknown_schema", unknown, len(unknown)),
                ("spans", "not_avro", good[:-3], len(good) - 3),
                ("spans", "not_avro", good + b"x", len(good) + 1),
                ("spans", "wrong_topic", heartbeat, len(heartbeat)),
            ]
        )
        assert rows(view, "SELECT DISTINCT reported_by FROM dead_letters") == [("view",)]
        assert rows(view, "SELECT next_offset FROM offsets WHERE topic = 'dead-letters'") == [(7,)]


def test_what_was_aborted_is_not_seen_and_what_was_committed_is(settings: Settings) -> None:
    producer = Producer(producer_config(settings) | {"transactional.id": settings.topic_prefix})
    producer.init_transactions(WAIT_S)
    resources = example_of(ResourcesRecord)
    topic = RESOURCES.full_name(settings.topic_prefix)
    codec = Codec()
    for name, finish in (("aborted", producer.abort_transaction), ("committed", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, codec.encode(resources.model_copy(update={"resources_id": name})), key=name)
        assert producer.flush(WAIT_S) == 0
        finish(WAIT_S)
    with following(settings) as view:
        catch_up(view)
        assert rows(view, "SELECT resources_id FROM resources") == [("committed",)]
        assert view.positions.snapshot()["resources", 0] == 4, "two records and two transaction markers"


def test_spans_of_20_megabytes_pass_in_batches_of_bounded_size(
    settings: Settings, publisher: KafkaPublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    collect: Callable[..., Batch | None] = BatchReader.collect

    def watched(reader: BatchReader, stopping: Any) -> Batch | None:
        batch = collect(reader, stopping)
        if batch is not None:
            sizes.append(sum(table.nbytes for table in batch.tables.values()))
        return batch

    monkeypatch.setattr(BatchReader, "collect", watched)
    tokens = 5_000_000
    prompt = pack_int32(range(tokens))
    written = [
        publisher.publish(SPANS, "key", proxy_span(number).model_copy(update={"llm_call": call}))
        for number in range(6)
        if (call := proxy_span(number, prompt_token_ids=prompt).llm_call)
    ]
    places = [future.result(WAIT_S) for future in written]  # all of it is there before the view starts
    with following(settings) as view:
        reflect(view, *places)
        assert (
            rows(view, "SELECT len(prompt_token_ids), prompt_token_ids[-1] FROM llm_calls")
            == [(tokens, tokens - 1)] * 6
        )
    assert max(sizes) < 100 * 1024 * 1024


def test_what_is_fetched_at_once_is_several_batches_where_it_is_too_much_for_one(
    settings: Settings, publisher: KafkaPublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    collect: Callable[..., Batch | None] = BatchReader.collect

    def watched(reader: BatchReader, stopping: Any) -> Batch | None:
        batch = collect(reader, stopping)
        if batch is not None:
            counts.append(batch.record_count)
        return batch

    monkeypatch.setattr(BatchReader, "collect", watched)
    monkeypatch.setattr("lightstream.store_views.materialiser.batch_reader.BATCH_BYTES_MAX", 1)
    written = [publisher.publish(SPANS, "key", proxy_span(number)) for number in range(20)]
    places = [future.result(WAIT_S) for future in written]
    with following(settings) as view:
        reflect(view, *places)
        assert rows(view, "SELECT count(*) FROM spans") == [(20,)]
    assert max(counts) == 1


def test_partitions_that_are_added_are_followed(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lightstream.runtime.kafka.topic_tail.CHECK_INTERVAL_S", 0.1)
    with following(settings) as view:
        catch_up(view)
        name = WORKERS.full_name(settings.topic_prefix)
        admin = AdminClient(common_config(settings))
        for future in admin.create_partitions([NewPartitions(name, 3)]).values():
            future.result(WAIT_S)
        producer = Producer(producer_config(settings))
        for partition in range(3):
            producer.produce(name, Codec().encode(example_of(WorkerHeartbeat)), key="w", partition=partition)
        assert producer.flush(WAIT_S) == 0
        reflect(view, *(Position("workers", partition, 0) for partition in range(3)))
        assert rows(view, "SELECT count(*) FROM workers_raw") == [(3,)]


def test_topics_that_were_deleted_and_made_again_rebuild_the_view(
    settings: Settings, publisher: KafkaPublisher
) -> None:
    for number in range(3):
        publisher.publish(SPANS, "key", proxy_span(number)).result(WAIT_S)
    with following(settings) as view:
        catch_up(view)
        assert rows(view, "SELECT count(*) FROM spans_raw") == [(3,)]
    publisher.close()
    admin = AdminClient(common_config(settings))
    name = SPANS.full_name(settings.topic_prefix)
    admin.delete_topics([name])[name].result(WAIT_S)
    assert eventually(lambda: name not in admin.list_topics().topics, timeout_s=WAIT_S)
    create_topics(settings)
    again = KafkaPublisher(settings)
    written = again.publish(SPANS, "key", proxy_span(7)).result(WAIT_S)
    with following(settings) as view:
        reflect(view, written)
        assert rows(view, "SELECT count(*) FROM spans_raw") == [(1,)]
    again.close()


def test_a_failure_to_write_is_told_and_wakes_waiters(settings: Settings, publisher: KafkaPublisher) -> None:
    failed: list[bool] = []
    materialiser = Materialiser(settings, on_failure=lambda: failed.append(True))
    materialiser.start()
    materialiser.database.close()
    written = publisher.publish(SPANS, "key", proxy_span(1)).result(WAIT_S)
    missing = materialiser.positions.wait_for({("spans", written.partition): written.offset + 1}, WAIT_S)
    assert missing
    materialiser.stop()
    assert materialiser.failure is not None
    assert failed == [True]


def test_an_error_of_any_kind_is_told_and_the_view_is_no_longer_well(
    settings: Settings, publisher: KafkaPublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object) -> None:
        raise pa.ArrowInvalid("no such column")  # a ValueError, and no error of DuckDB's

    monkeypatch.setattr(ViewDatabase, "append", refuse)
    ended = threading.Event()
    materialiser = Materialiser(settings, on_failure=ended.set)
    materialiser.start()
    with TestClient(create_app(materialiser)) as http:
        assert http.get("/healthz").status_code == 200
        publisher.publish(SPANS, "key", proxy_span(1)).result(WAIT_S)
        assert ended.wait(WAIT_S)
        answer = http.get("/healthz")
        assert (answer.status_code, answer.json()) == (503, {"status": "failed", "reason": "no such column"})
    materialiser.stop()


def test_until_it_has_caught_up_with_its_start_answers_say_that_rows_are_missing(
    settings: Settings, publisher: KafkaPublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_append = threading.Event()
    append = ViewDatabase.append

    def wait_and_append(*arguments: Any) -> None:
        assert may_append.wait(WAIT_S)
        append(*arguments)

    publisher.publish(SPANS, "key", proxy_span(1)).result(WAIT_S)
    monkeypatch.setattr(ViewDatabase, "append", wait_and_append)
    with following(settings) as view, TestClient(create_app(view)) as http:
        asked = http.post("/v1/sql", json={"sql": "SELECT count(*) FROM spans_raw"})
        assert (asked.json()["rows"], asked.json()["rebuilding"]) == ([[0]], True)
        assert asked.headers["x-lightstream-rebuilding"] == "true"
        progress = http.get("/v1/positions").json()["rebuilding"]
        assert progress["records_total"] >= 1
        assert (view.unready() or "").startswith("the view is rebuilding: ")
        may_append.set()
        reflect(view, publisher.publish(SPANS, "key", proxy_span(2)).result(WAIT_S))
        asked = http.post("/v1/sql", json={"sql": "SELECT count(*) FROM spans_raw"})
        assert (asked.json()["rows"], asked.json()["rebuilding"]) == ([[2]], False)
        assert asked.headers["x-lightstream-rebuilding"] == "false"
        assert http.get("/v1/positions").json()["rebuilding"] is None
        assert view.unready() is None


def test_while_kafka_is_away_positions_say_for_how_long_and_queries_are_answered(
    private_broker: EmbeddedBroker, private_settings: Settings
) -> None:
    with following(private_settings) as view, TestClient(create_app(view)) as http:

        def silent_s() -> float:
            said: float = http.get("/v1/positions").json()["kafka_silent_s"]
            return said

        assert eventually(lambda: silent_s() == 0, what="Kafka's answer")
        private_broker.kill()
        first = eventually(silent_s, what="the silence")
        assert eventually(lambda: silent_s() > (first or 0), what="a longer silence")
        assert http.get("/v1/positions").json()["lag_records"] == 0, "nothing else is known"
        assert http.post("/v1/sql", json={"sql": "SELECT count(*) FROM spans"}).json()["rows"] == [[0]]
        private_broker.start()
        assert eventually(lambda: silent_s() == 0, what="Kafka's answer")


def test_a_dead_letter_has_the_key_that_every_reader_gives_it(settings: Settings, publisher: KafkaPublisher) -> None:
    place = publisher.publish_encoded(SPANS, "key", b"junk").result(WAIT_S)
    with following(settings) as view:
        catch_up(view)
        assert rows(view, "SELECT origin_topic, origin_partition, origin_offset, key FROM dead_letters") == [
            ("spans", place.partition, place.offset, b"key")
        ]
    assert DeadLetter.model_fields["reported_by"].default == ""


def test_spans_that_only_the_log_holds_are_not_lost_when_the_file_is(
    settings: Settings, publisher: KafkaPublisher
) -> None:
    span: SpanRecord = proxy_span(1)
    written = publisher.publish(SPANS, "key", span).result(WAIT_S)
    for _ in range(2):
        with following(settings) as view:
            reflect(view, written)
            assert rows(view, "SELECT span_id FROM spans") == [(span.span_id,)]
            path = view.database.path
        path.unlink()


def test_what_another_version_wrote_is_kept_and_read_by_that_one_from_the_file(
    settings: Settings, publisher: KafkaPublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the tables are the same, that is the same file: nothing is rebuilt."""
    without_spans = tuple(version for version in schema_versions() if version.record is not SpanRecord)
    with monkeypatch.context() as patched:
        patched.setattr(codec, "schema_versions", lambda: without_spans)
        older = Codec()
    written = [
        publisher.publish(SPANS, "key", proxy_span(number), headers=[(WRITER, "9.0.0")]).result(WAIT_S)
        for number in range(READ_LATER_RECORDS + 1)
    ]
    view = Materialiser(settings, codec=older)
    view.start()
    try:
        reflect(view, *written)
        eventually(lambda: view.unread == {"9.0.0": len(written)})
        assert "install version 9.0.0" in (view.unready() or "")
        assert rows(view, "SELECT count(*) FROM spans_raw") == [(0,)]
        assert rows(view, "SELECT unread, balanced FROM call_accounting") == [(len(written), False)]
    finally:
        view.stop()
    with following(settings) as view:
        assert view.rebuilding is None
        assert (view.unread, view.unready()) == ({}, None)
        found = rows(view, "SELECT log_partition, log_offset FROM spans_raw ORDER BY log_offset")
        assert found == [(place.partition, place.offset) for place in written]
        assert rows(view, "SELECT unread, balanced FROM call_accounting") == [(0, True)]
        catch_up(view)
        assert rows(view, "SELECT count(*) FROM dead_letters_raw") == [(0,)]
