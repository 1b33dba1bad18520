"""Writers of spans whose topic takes less than it did: proxy, exporter and gateway send less, and say what they cut."""

from __future__ import annotations

import asyncio
import random
from contextlib import closing
from typing import Any

import httpx
import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from lightstream.producers.exporter import KafkaSpanExporter
from lightstream.producers.llm_proxy.call import Call, Caller
from lightstream.producers.llm_proxy.capture import Completion, capture
from lightstream.producers.llm_proxy.dialects import CHAT
from lightstream.producers.llm_proxy.recording import CallRecorder
from lightstream.producers.otlp.gateway import gateway
from lightstream.producers.semconv import TRUNCATED
from lightstream.runtime.clock import SystemClock
from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.settings import Settings
from lightstream.schemas.packing import unpack_int32
from lightstream.schemas.records import DropReason, SpanRecord
from lightstream.schemas.topics import SPANS
from lightstream.stream_processors.core.dialects import read_calls
from tests.producers.otlp.requests import PROTOBUF, span, trace_request
from tests.producers.support import Spans, read_records
from tests.support.topic_limits import PROBE, limit_topic

LOW = 20_000
NOISE = "".join(random.Random(1).choices("0123456789abcdefghijklmnopqrstuvwxyz", k=4 * LOW))
"""Compression leaves more than half of it."""


@pytest.fixture
def limited(settings: Settings) -> Settings:
    limit_topic(settings, SPANS, LOW)
    return settings


def _written(settings: Settings) -> SpanRecord:
    found = [record for _, record in read_records(settings, SPANS) if isinstance(record, SpanRecord)]
    (record,) = [record for record in found if record.name != PROBE]
    return record


@pytest.mark.parametrize(
    ("request_body", "prompt_ids", "cut"),
    [
        (NOISE, [1, 2], ["llm_call.request_json"]),
        ("{}", random.Random(2).sample(range(150_000), LOW), ["llm_call.prompt_token_ids"]),
    ],
)
def test_a_call_goes_out_without_what_is_too_large(
    limited: Settings, request_body: str, prompt_ids: list[int], cut: list[str]
) -> None:
    answer: dict[str, Any] = {"message": {"role": "assistant", "content": "hi"}, "token_ids": [7]}
    completion = Completion()
    capture(completion, {"id": "c", "prompt_token_ids": prompt_ids, "choices": [answer]}, is_whole=True)
    call = Call(Caller("r", "a", "0" * 32), CHAT, request_body=request_body.encode(), completion=completion)

    async def record() -> None:
        await CallRecorder(publisher, SystemClock()).record(call)

    with closing(KafkaPublisher(limited)) as publisher:
        asyncio.run(record())
    written = _written(limited)
    assert set(cut) <= set(written.attributes[TRUNCATED])
    assert written.llm_call is not None
    assert (written.llm_call.response_id, written.llm_call.http_status) == ("c", None)
    if "llm_call.prompt_token_ids" not in cut:
        assert list(unpack_int32(written.llm_call.response_token_ids or b"")) == [7]
    (read,) = read_calls(written)
    assert (read.problem is DropReason.TOO_LARGE) == ("llm_call.prompt_token_ids" in cut), read.detail


def test_an_exported_span_is_cut_and_no_span_is_lost(limited: Settings) -> None:
    exporter = KafkaSpanExporter(limited)
    spans = Spans()
    spans.tracer.start_span("n", attributes={"prompt": NOISE}).end()
    exporter.submit(spans.ended()[0])
    exporter.flush()
    assert (exporter.stats.failed, exporter.stats.truncated) == (0, 1)
    exporter.shutdown()
    written = _written(limited)
    assert NOISE.startswith(written.attributes["prompt"])
    assert "attributes.prompt" in written.attributes[TRUNCATED][0]


def test_the_gateway_cuts_a_span_and_answers_200(limited: Settings) -> None:
    server = gateway(limited.model_copy(update={"gateway_port": 0, "gateway_grpc_port": 0}))
    url = f"{server.start()}/v1/traces"
    large = KeyValue(key="prompt", value=AnyValue(string_value=NOISE))
    body = trace_request(span(1, attributes=[large])).SerializeToString()
    answer = httpx.post(url, content=body, headers=PROTOBUF, timeout=60)
    server.stop()
    assert answer.status_code == 200
    written = _written(limited)
    assert NOISE.startswith(written.attributes["prompt"])
    assert "attributes.prompt" in written.attributes[TRUNCATED][0]
