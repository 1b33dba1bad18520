"""Topics as the OpenTelemetry Collector's Kafka exporter writes them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

# A public name that the package's __all__ lacks.
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # pyright: ignore[reportPrivateImportUsage]  # isort: skip

from lightstream.broker import EmbeddedBroker
from lightstream.producers.otlp.gateway import gateway
from lightstream.runtime.kafka import common_config
from lightstream.runtime.settings import Settings
from lightstream.schemas.records import DeadLetter
from tests.producers.otlp.conftest import WAIT_S, StartGateway
from tests.producers.otlp.requests import TRACE_ID, json_request, json_span, log_request, span, trace_request
from tests.producers.support import read_spans
from tests.support.waiting import eventually

OTHER_TRACE = bytes(range(101, 117))


@pytest.fixture
def topics(settings: Settings) -> Iterator[tuple[str, str]]:
    """A topic of traces and one of logs, which other programs own."""
    names = (f"otlp_spans-{uuid.uuid4().hex[:8]}", f"otlp_logs-{uuid.uuid4().hex[:8]}")
    admin = AdminClient(common_config(settings))
    for future in admin.create_topics([NewTopic(name, num_partitions=3) for name in names]).values():
        future.result(300)
    yield names
    for future in admin.delete_topics(list(names)).values():
        future.result(300)


def write(settings: Settings, topic: str, *messages: tuple[bytes | None, bytes]) -> None:
    producer = Producer(common_config(settings) | {"compression.type": "gzip"})
    for key, value in messages:
        producer.produce(topic, value, key=key)
    assert producer.flush(300) == 0


def test_both_encodings_with_and_without_keys(
    start_gateway: StartGateway,
    settings: Settings,
    topics: tuple[str, str],
    dead_letters: Callable[[], list[DeadLetter]],
) -> None:
    traces, logs = topics
    mixed = trace_request(span(1), span(2, trace_id=OTHER_TRACE), lightstream__rollout_id="r")
    data = TracesData(resource_spans=mixed.resource_spans).SerializeToString()
    one_bad = trace_request(span(4), span(5, trace_id=b"")).SerializeToString()
    attribute = {"key": "agentlightning.rollout_id", "value": {"stringValue": "r2"}}
    as_json = json_request(json_span(6), attributes=[attribute])
    write(settings, traces, (None, data), (TRACE_ID, one_bad), (b"any", as_json), (None, b"no OTLP"), (None, b"{"))
    write(settings, logs, (None, log_request(trace_id=TRACE_ID, time_unix_nano=1).SerializeToString()))
    start_gateway(gateway_traces_topics=f"{traces}, ", gateway_logs_topics=logs)
    eventually(lambda: len(read_spans(settings)) == 5, what="all spans are in the log")
    eventually(lambda: len(dead_letters()) == 3, what="all dead letters are in the log")
    found = {(record.name, record.trace_id, record.rollout_id) for record in read_spans(settings)}
    assert found == {
        ("span 1", TRACE_ID.hex(), "r"),
        ("span 2", OTHER_TRACE.hex(), "r"),
        ("span 4", TRACE_ID.hex(), None),
        ("span 6", TRACE_ID.hex(), "r2"),
        ("log", TRACE_ID.hex(), None),
    }
    letters = {letter.value: letter for letter in dead_letters()}
    assert set(letters) == {one_bad, b"no OTLP", b"{"}
    assert letters[one_bad].detail.startswith("1 items of the message were left out")
    assert {letter.origin_topic for letter in letters.values()} == {traces}


def test_a_second_gateway_goes_on_where_the_first_stopped(settings: Settings, topics: tuple[str, str]) -> None:
    changes = {"gateway_port": 0, "gateway_grpc_port": 0, "gateway_wait_s": WAIT_S}
    changed = settings.model_copy(update=changes | {"gateway_traces_topics": topics[0]})
    for number in (1, 2):
        write(settings, topics[0], (None, trace_request(span(number)).SerializeToString()))
        server = gateway(changed)
        server.start()
        eventually(partial(_is_in_log, settings, number), what="the span is in the log")
        server.stop()
    assert sorted(record.name for record in read_spans(settings)) == ["span 1", "span 2"], "none was read twice"


def _is_in_log(settings: Settings, number: int) -> bool:
    return f"span {number}" in {record.name for record in read_spans(settings)}


def test_without_kafka_a_message_waits(private_settings: Settings, private_broker: EmbeddedBroker) -> None:
    topic = "otlp_spans"
    admin = AdminClient(common_config(private_settings))
    admin.create_topics([NewTopic(topic, num_partitions=1)])[topic].result(300)
    changed = private_settings.model_copy(
        update={"gateway_port": 0, "gateway_grpc_port": 0, "gateway_traces_topics": topic, "gateway_wait_s": 0.2}
    )
    server = gateway(changed)
    server.start()
    write(private_settings, topic, *((None, trace_request(span(n)).SerializeToString()) for n in range(1, 200)))
    private_broker.kill()
    private_broker.start()
    eventually(lambda: len({record.name for record in read_spans(private_settings)}) == 199, what="all are in the log")
    server.stop()
