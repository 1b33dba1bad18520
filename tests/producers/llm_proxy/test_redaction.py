"""A canary that the rules name is in no byte of Kafka, whichever way it came; what they do not name is."""

from __future__ import annotations

import json
import uuid
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, TopicPartition
from openai import OpenAI

from lightstream.producers.exporter import KafkaSpanExporter
from lightstream.producers.otlp.gateway import gateway
from lightstream.runtime.kafka import PartitionReader, consumer_config
from lightstream.runtime.redaction import REDACTED, Redaction
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError
from lightstream.schemas.packing import pack_int32
from lightstream.schemas.records import LlmCall, SpanEventRecord, SpanRecord
from lightstream.schemas.topics import TOPICS
from tests.producers.llm_proxy.conftest import StartProxy
from tests.producers.llm_proxy.upstreams import ScriptedUpstream, completion
from tests.producers.otlp.requests import JSON, json_request, json_span
from tests.producers.support import Spans, read_spans

CANARY = "CANARY-4711-0815"
NAMED = "the value of a named attribute"
RULES: dict[str, Any] = {"redact_pattern": r"CANARY-\d+-\d+", "redact_attributes": "secret.*, password"}


def values_in_kafka(settings: Settings) -> bytes:
    """Keys, values and headers of all records of all topics, as they are in the log."""
    consumer = Consumer(consumer_config(settings, group_id=f"test-{uuid.uuid4().hex}"))
    found: list[bytes] = []
    try:
        for topic in TOPICS:
            name = topic.full_name(settings.topic_prefix)
            for partition in range(topic.partitions(settings.topic_partitions)):
                first, end = PartitionReader(settings, topic, partition, group_id="tests").watermarks()
                consumer.assign([TopicPartition(name, partition, first)])
                for _ in range(first, end):
                    message = consumer.poll(30)
                    assert message is not None
                    found += [message.key() or b"", message.value() or b"", repr(message.headers()).encode()]
    finally:
        consumer.close()
    return b"\0".join(found)


def is_clean(settings: Settings) -> bool:
    found = values_in_kafka(settings)
    assert found
    return not any(text in found for text in (CANARY.encode(), CANARY[1:].encode(), NAMED.encode()))


def attributes() -> dict[str, Any]:
    return {
        "kept": "kept",
        "secret.key": NAMED,
        "password": NAMED,
        "text": f"before {CANARY} after",
        "list": ["a", CANARY],
        "json": json.dumps({"content": CANARY, "password": NAMED}),
        "escaped": '{"content": "\\u0043ANARY-4711-0815"}',
    }


def test_the_exporter(settings: Settings) -> None:
    spans = Spans()
    span = spans.tracer.start_span(f"call {CANARY}", attributes=attributes())
    span.add_event(CANARY, {"password": NAMED, "seen": CANARY})
    span.end()
    exporter = KafkaSpanExporter(settings.model_copy(update=RULES))
    for ended in spans.ended():
        assert exporter.submit(ended)
    exporter.flush(timeout_s=60)
    exporter.shutdown()
    (record,) = read_spans(settings)
    assert record.attributes["kept"] == "kept"
    assert record.attributes["text"] == f"before {REDACTED} after"
    assert json.loads(record.attributes["json"]) == {"content": REDACTED, "password": REDACTED}
    assert is_clean(settings)


def otlp(values: dict[str, Any]) -> list[dict[str, Any]]:
    def value(item: Any) -> dict[str, Any]:
        if isinstance(item, list):
            return {"arrayValue": {"values": [value(each) for each in item]}}
        return {"stringValue": item}

    return [{"key": name, "value": value(item)} for name, item in values.items()]


def test_the_gateway_and_its_dead_letters(settings: Settings) -> None:
    server = gateway(settings.model_copy(update=RULES | {"gateway_port": 0, "gateway_grpc_port": 0}))
    url = f"{server.start()}/v1/traces"
    try:
        good = json_span(1, name=CANARY, attributes=otlp(attributes()), status={"message": CANARY})
        rejected = [json_span(n, traceId="xyz", attributes=otlp(attributes() | {"n": str(n)})) for n in (2, 3)]
        body = json_request(good, *rejected, attributes=otlp(attributes()))
        assert httpx.post(url, content=body, headers=JSON, timeout=60).status_code == 200
        for undecodable in (f'{{"resourceSpans": {CANARY}', f'{{"password": "{NAMED}'):
            assert httpx.post(url, content=undecodable.encode(), headers=JSON, timeout=60).status_code == 400
    finally:
        server.stop()
    assert [record.name for record in read_spans(settings)] == [REDACTED]
    assert is_clean(settings)


def test_the_proxy(start_proxy: StartProxy, upstream: ScriptedUpstream, settings: Settings) -> None:
    """The agent has its answer whole; the record has neither the text nor the tokens of it."""
    answer = completion()
    answer["choices"][0]["message"]["content"] = f"it is {CANARY}"
    upstream.answer = lambda _: answer
    client = OpenAI(base_url=f"{start_proxy(**RULES)}/rollout/r/attempt/a/v1", api_key="none", max_retries=0)
    message: Any = {"role": "user", "content": f"what is {CANARY}?"}
    given = client.chat.completions.create(model="m", messages=[message])
    assert given.choices[0].message.content == f"it is {CANARY}"
    (record,) = read_spans(settings)
    call = record.llm_call
    assert call is not None
    assert (call.prompt_token_ids, call.response_token_ids, call.response_tokens_text) == (None, None, None)
    assert json.loads(call.request_json or "")["messages"][0]["content"] == f"what is {REDACTED}?"
    assert is_clean(settings)


def test_without_a_match_a_span_is_as_it_was() -> None:
    span = SpanRecord(
        trace_id="1" * 32,
        span_id="2" * 16,
        name="n",
        attributes={"a": [1, 2.5, True], "json": ' {"a": 1}', "spaced": '{"a":   1}', "bytes": b"\xff"},
        events=[SpanEventRecord(name="e")],
        llm_call=LlmCall(request_json='{"a":   1}', prompt_token_ids=pack_int32([1])),
    )
    assert Redaction(Settings.load(**RULES))(span) is span
    assert Redaction(Settings.load())(span) is span


def test_a_pattern_that_is_none_is_named() -> None:
    with pytest.raises(SettingsError, match=r"LIGHTSTREAM_REDACT_PATTERN .*no regular expression"):
        Settings.load(redact_pattern="(")
