"""The exporter on a real Kafka: durable, bounded, never silent."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult

from lightstream.producers.context import AttemptRef
from lightstream.producers.exporter import KafkaSpanExporter
from lightstream.producers.exporter.fitting import shortened
from lightstream.runtime.kafka import Delivered, Instead
from lightstream.runtime.settings import Settings
from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import BackpressureError, PublishError, RecordTooLargeError
from lightstream.schemas.packing import pack_int32
from lightstream.schemas.records import LlmCall, Record, SpanEventRecord, SpanLinkRecord, SpanRecord
from lightstream.schemas.topics import Topic
from tests.producers.support import Spans
from tests.support.waiting import eventually

SpansInLog = Callable[[], list[SpanRecord]]
MIB = 1024 * 1024


def ended(attributes: dict[str, Any] | None = None, name: str = "n", count: int = 1) -> list[ReadableSpan]:
    spans = Spans()
    for _ in range(count):
        spans.tracer.start_span(name, attributes=attributes).end()
    return list(spans.ended())


class Stuck:
    """A publisher whose records become durable when told to."""

    def __init__(self) -> None:
        self.futures: list[Future[None]] = []
        self.full = False

    def send(
        self, topic: Topic, key: str, record: Record, delivered: Delivered, *, instead: Instead | None = None
    ) -> None:
        if self.full:
            raise BackpressureError("full.")
        future: Future[None] = Future()
        future.add_done_callback(lambda done: delivered(cast("PublishError | None", done.exception())))
        self.futures.append(future)

    def flush(self, timeout_s: float) -> int:
        return len(self.futures)

    def let_go(self, futures: Iterable[Future[None]] | None = None) -> None:
        for future in self.futures if futures is None else futures:
            future.set_result(None)


def test_spans_are_durable_after_a_flush_in_order(exporter: KafkaSpanExporter, spans_in_log: SpansInLog) -> None:
    spans = ended(count=300)
    assert all(exporter.submit(span, AttemptRef("r", "r-a1")) for span in spans)
    exporter.flush(AttemptRef("r", "r-a1"))
    assert [s.span_id for s in spans_in_log()] == [f"{s.get_span_context().span_id:016x}" for s in spans]  # type: ignore[union-attr]  # an ended span has a context
    assert (exporter.stats.handed_over, exporter.stats.durable) == (300, 300)


def test_works_behind_the_sdks_batch_processor(settings: Settings, spans_in_log: SpansInLog) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(KafkaSpanExporter(settings)))
    for i in range(10):
        provider.get_tracer("t").start_span(f"s{i}").end()
    provider.shutdown()
    assert sorted(span.name for span in spans_in_log()) == [f"s{i}" for i in range(10)]


def test_twenty_megabytes_pass(exporter: KafkaSpanExporter, spans_in_log: SpansInLog) -> None:
    prompt = "Größe " * (20 * MIB // 8)
    assert len(prompt.encode()) > 20_000_000
    (span,) = ended({"gen_ai.input.messages": prompt})
    exporter.submit(span)
    exporter.flush()
    (record,) = spans_in_log()
    assert record.attributes == {"gen_ai.input.messages": prompt}
    assert exporter.stats.truncated == 0


def test_span_over_the_limit_is_truncated_and_says_so(
    settings: Settings, exporter: KafkaSpanExporter, spans_in_log: SpansInLog
) -> None:
    (span,) = ended(
        {
            "huge": "x" * (settings.record_bytes_max + 1),
            "large": "y" * MIB,
            "lightstream.response_token_ids": list(range(1000)),
        }
    )
    (beside,) = ended(name="beside")
    exporter.submit(span)
    exporter.submit(beside)
    exporter.flush()
    records = {record.name: record for record in spans_in_log()}
    cut = records["n"]
    assert cut.attributes["lightstream.truncated"] == [f"attributes.huge ({settings.record_bytes_max + 5:,} bytes)"]
    assert set(cut.attributes["huge"]) == {"x"}
    assert cut.attributes["large"] == "y" * MIB, "only as much is cut as is needed"
    assert cut.llm_call is not None
    assert cut.llm_call.response_token_ids == pack_int32(range(1000))
    assert records["beside"].attributes == {}
    assert exporter.stats.truncated == 1


def test_shortening_finds_what_is_big_wherever_it_is() -> None:
    big = "z" * 10_000
    record = SpanRecord(
        trace_id="0" * 32,
        span_id="1" * 16,
        name="n" * 200_000,
        attributes={"list": [big, big], "map": {"k": big}, "small": 1, "k" * 20_000: 1},
        resource_attributes={"r": big},
        events=[SpanEventRecord(name="e", attributes={"e": big})],
        links=[SpanLinkRecord(trace_id="0" * 32, span_id="2" * 16, attributes={"l": big})],
        llm_call=LlmCall(request_json=big, response_json=big, prompt_token_ids=b"1234" * 3000),
    )
    size = len(Codec().encode(record))
    short = shortened(record, size)
    assert len(Codec().encode(short)) < 100_000
    assert short.attributes["small"] is None, "asked for everything, everything goes"
    assert len(short.attributes["lightstream.truncated"]) == 11
    some = shortened(record, 1)
    assert some.attributes["list"] == [big, big], "the name alone was enough"
    assert some.attributes["lightstream.truncated"] == ["name (200,000 bytes)"]
    assert record.attributes["small"] == 1
    assert record.events[0].attributes == {"e": big}


def test_span_that_cannot_be_made_to_fit_is_an_error_at_the_flush(settings: Settings) -> None:
    class Tiny(Stuck):
        def send(
            self, topic: Topic, key: str, record: Record, delivered: Delivered, *, instead: Instead | None = None
        ) -> None:
            raise RecordTooLargeError(topic.name, len(Codec().encode(record)), 10)

    exporter = KafkaSpanExporter(settings, publisher=Tiny())
    exporter.submit(ended()[0])
    with pytest.raises(PublishError, match=r"1 were lost.*over the limit of 10 bytes"):
        exporter.flush()
    exporter.flush()  # told once


def test_text_that_is_not_unicode_is_repaired(exporter: KafkaSpanExporter, spans_in_log: SpansInLog) -> None:
    (span,) = ended()
    broken = ReadableSpan(
        "na\ud800me", span.get_span_context(), attributes={"a": "x\ud800y", "deep": {"b\udfff": ["\ud800"]}}
    )
    exporter.submit(broken)
    exporter.flush()
    (record,) = spans_in_log()
    assert record.name == "na?me"
    assert record.attributes == {"a": "x?y", "deep": {"b?": ["?"]}}


def test_memory_is_bounded_and_rejections_are_reported(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    stuck = Stuck()
    stuck.full = True
    exporter = KafkaSpanExporter(settings, publisher=stuck, buffer_bytes_max=3 * MIB)
    (span,) = ended({"prompt": "x" * MIB})
    mine, other = AttemptRef("mine", "a"), AttemptRef("other", "a")
    with caplog.at_level(logging.ERROR):
        accepted = [exporter.submit(span, mine) for _ in range(10)]
    assert accepted.count(True) == 2
    assert exporter.stats.rejected == 8
    assert "rejected so far: the buffer of 3,145,728 bytes is full" in caplog.text
    assert exporter.export([span]) is SpanExportResult.FAILURE
    exporter.flush(other)
    stuck.full = False
    eventually(lambda: len(stuck.futures) == 2)
    assert exporter.submit(span, mine), "there is room again"
    eventually(lambda: len(stuck.futures) == 3)
    stuck.let_go()
    with pytest.raises(PublishError, match="of attempt 'a' are missing from the log: 8 were rejected"):
        exporter.flush(mine)
    exporter.flush(mine)
    assert exporter.stats.durable == 3


def test_one_span_larger_than_the_buffer_is_taken_alone(settings: Settings) -> None:
    exporter = KafkaSpanExporter(settings, publisher=(stuck := Stuck()), buffer_bytes_max=1)
    assert exporter.submit(ended({"prompt": "x" * MIB})[0])
    eventually(lambda: len(stuck.futures) == 1)
    stuck.let_go()
    exporter.flush()


def test_flush_waits_for_its_attempt_alone_and_says_what_is_missing(settings: Settings) -> None:
    stuck = Stuck()
    exporter = KafkaSpanExporter(settings, publisher=stuck)
    slow, quick = AttemptRef("slow", "s"), AttemptRef("quick", "q")
    exporter.submit(ended()[0], slow)
    exporter.submit(ended()[0], quick)
    eventually(lambda: len(stuck.futures) == 2)
    stuck.let_go(stuck.futures[1:])
    exporter.flush(quick)
    with pytest.raises(PublishError, match="1 did not become durable within 0 s"):
        exporter.flush(slow, timeout_s=0)
    assert not exporter.force_flush(0)
    stuck.let_go(stuck.futures[:1])
    exporter.flush(slow)  # what was late is not forgotten
    assert exporter.force_flush(0)


def test_failed_delivery_is_an_error_at_the_flush(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    stuck = Stuck()
    exporter = KafkaSpanExporter(settings, publisher=stuck)
    exporter.submit(ended()[0])
    eventually(lambda: len(stuck.futures) == 1)
    stuck.futures[0].set_exception(PublishError("the broker burned down."))
    with pytest.raises(PublishError, match=r"1 were lost \(the broker burned down"):
        exporter.flush()
    assert exporter.stats.failed == 1
    assert "1 spans lost so far: the broker burned down." in caplog.text


def test_after_shutdown_spans_are_rejected(exporter: KafkaSpanExporter, spans_in_log: SpansInLog) -> None:
    exporter.submit(ended()[0])
    exporter.shutdown()
    exporter.shutdown()
    assert len(spans_in_log()) == 1
    assert not exporter.submit(ended()[0])
    with pytest.raises(PublishError, match="the exporter is shut down"):
        exporter.flush()


PROGRAM = """
import sys
from support import Spans
from lightstream.producers.exporter import KafkaSpanExporter
spans = Spans()
for i in range(500):
    spans.tracer.start_span(f"s{i}").end()
KafkaSpanExporter.shutdown.__defaults__ = (100.0,)  # a busy machine connects in more than ten seconds
exporter = KafkaSpanExporter()
exporter.export(spans.ended())
"""


@pytest.mark.parametrize("ending", ["", "sys.exit(3)", "raise ValueError"])
def test_flushes_when_the_process_ends(settings: Settings, spans_in_log: SpansInLog, ending: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + ending],
        env=os.environ | settings.to_environment() | {"PYTHONPATH": str(Path(__file__).parent)},
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == {"": 0, "sys.exit(3)": 3, "raise ValueError": 1}[ending], done.stderr
    assert len(spans_in_log()) == 500


def test_process_that_ends_without_kafka_says_what_is_lost(settings: Settings) -> None:
    away = settings.model_copy(update={"kafka_bootstrap_servers": "127.0.0.1:1"})
    program = PROGRAM.replace("exporter = ", "import lightstream.producers.exporter.exporter as m\n"
                              "m.KafkaSpanExporter.shutdown.__defaults__ = (0.2,)\nexporter = ")  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | away.to_environment() | {"PYTHONPATH": str(Path(__file__).parent)},
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        check=True,
    )
    assert "spans are missing from the log: 500 did not become durable within 0.2 s" in done.stderr


FORKING_PROGRAM = """
import faulthandler, multiprocessing
from support import Spans
from lightstream.producers.exporter import KafkaSpanExporter
KafkaSpanExporter.shutdown.__defaults__ = (100.0,)  # a busy machine connects in more than ten seconds
faulthandler.enable()
def ended(name, count):
    spans = Spans()
    for _ in range(count):
        spans.tracer.start_span(name).end()
    return spans.ended()
def child():
    exporter.export(ended("child", 50))
    assert exporter.stats.handed_over == 50, "the child starts from zero"
exporter = KafkaSpanExporter()
exporter.export(ended("before", 200))
children = [multiprocessing.get_context("fork").Process(target=child) for _ in range(2)]
for process in children:
    process.start()
    exporter.export(ended("beside", 50))
for process in children:
    process.join()
    assert process.exitcode == 0, process.exitcode
exporter.flush()
"""


def test_a_forked_child_sends_its_own_spans_and_the_parent_its_own(
    settings: Settings, spans_in_log: SpansInLog
) -> None:
    """Handed over before, during and after the fork; each once. Children leave by ``os._exit``."""
    subprocess.run(
        [sys.executable, "-c", FORKING_PROGRAM],
        env=os.environ | settings.to_environment() | {"PYTHONPATH": str(Path(__file__).parent)},
        timeout=120,
        check=True,
    )
    names = [span.name for span in spans_in_log()]
    assert {name: names.count(name) for name in set(names)} == {"before": 200, "beside": 100, "child": 100}
