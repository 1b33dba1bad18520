"""A topic that takes less than it did: nothing that fits is lost, and what does not fit is told or made smaller."""

from __future__ import annotations

import random
import threading
from concurrent.futures import Future
from contextlib import closing
from typing import Any

import pytest

from lightstream.runtime.kafka import KafkaPublisher, Outgoing, Position
from lightstream.runtime.settings import Settings
from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import RecordTooLargeError
from lightstream.schemas.records import DeadLetter, DeadLetterReason, SpanRecord
from lightstream.schemas.topics import DEAD_LETTERS, SPANS
from tests.producers.support import read_records
from tests.support.topic_limits import PROBE, limit_topic
from tests.support.waiting import eventually

CODEC = Codec()
LOW, HIGH = 20_000, 2**25
WAIT_S = 120


def _span(number: int, size_bytes: int) -> SpanRecord:
    """One that compression does not make smaller."""
    noise = random.Random(number).randbytes(size_bytes)
    return SpanRecord(
        trace_id=f"{number:032x}", span_id=f"{number:016x}", name=f"s{number}", attributes={"noise": noise}
    )


def _spans(settings: Settings) -> list[SpanRecord]:
    found = [record for _, record in read_records(settings, SPANS) if isinstance(record, SpanRecord)]
    return [record for record in found if record.name != PROBE]


def _smaller(record: SpanRecord) -> Any:
    def make(error: RecordTooLargeError) -> Outgoing:
        assert error.size_bytes > LOW
        cut = record.model_copy(update={"attributes": {"cut": error.message}})
        return Outgoing(SPANS, record.trace_id, CODEC.encode(cut))

    return make


def test_small_records_of_a_batch_that_is_too_large_all_arrive(settings: Settings) -> None:
    limit_topic(settings, SPANS, LOW)
    with closing(KafkaPublisher(settings, linger_ms=100)) as publisher:
        sent = [publisher.publish(SPANS, f"{number:032x}", _span(number, 1000)) for number in range(200)]
        positions = [future.result(WAIT_S) for future in sent]
        assert publisher.flush(WAIT_S) == 0
    assert len(set(positions)) == len({record.name for record in _spans(settings)}) == 200


def test_a_record_that_does_not_fit_alone_goes_out_smaller_or_is_told(settings: Settings) -> None:
    limit_topic(settings, SPANS, LOW)
    large = _span(1, 3 * LOW)
    with closing(KafkaPublisher(settings)) as publisher:
        cut = publisher.publish(SPANS, large.trace_id, large, instead=_smaller(large))
        lost = publisher.publish(SPANS, large.trace_id, large)
        assert isinstance(cut.result(WAIT_S), Position)
        with pytest.raises(RecordTooLargeError, match=f"limit of {LOW:,} bytes of 'spans'"):
            lost.result(WAIT_S)
        limit_topic(settings, SPANS, HIGH)
        eventually(  # a broker takes a moment until a raised limit counts
            lambda: publisher.publish(SPANS, large.trace_id, large).exception(WAIT_S) is None,
            what="the raised limit counts",
        )
    first, second = _spans(settings)
    assert "over the limit" in first.attributes["cut"]
    assert second.attributes == large.attributes


def test_a_dead_letter_is_cut_until_it_fits(settings: Settings) -> None:
    limit_topic(settings, DEAD_LETTERS, LOW)
    letter = DeadLetter(
        reason=DeadLetterReason.NOT_AVRO,
        detail="x",
        origin_topic="spans",
        origin_partition=0,
        origin_offset=1,
        value=random.Random(1).randbytes(5 * LOW),
        value_size=5 * LOW,
        reported_by="tests",
        observed_unix_nano=1,
    )
    with closing(KafkaPublisher(settings)) as publisher:
        publisher.publish(DEAD_LETTERS, "key", letter).result(WAIT_S)
    (kept,) = [record for _, record in read_records(settings, DEAD_LETTERS) if isinstance(record, DeadLetter)]
    assert kept.value_size == 5 * LOW
    assert 0 < len(kept.value or b"") < LOW
    assert (letter.value or b"").startswith(kept.value or b"")


def test_under_load_nothing_is_lost_while_the_limit_is_lowered_and_raised(settings: Settings) -> None:
    sent: dict[int, list[Future[Position]]] = {number: [] for number in range(4)}
    stop = threading.Event()

    def write(publisher: KafkaPublisher, writer: int) -> None:
        while not stop.is_set():
            number = writer * 1_000_000 + len(sent[writer])
            record = _span(number, 2 * LOW if number % 20 == 0 else 300)
            sent[writer].append(publisher.publish(SPANS, record.trace_id, record, instead=_smaller(record)))
            if number % 50 == 0:
                sent[writer][-1].result(WAIT_S)

    with closing(KafkaPublisher(settings, linger_ms=5)) as publisher:
        writers = [threading.Thread(target=write, args=(publisher, writer)) for writer in sent]
        for thread in writers:
            thread.start()
        for limit_bytes in (LOW, HIGH, LOW, HIGH):
            limit_topic(settings, SPANS, limit_bytes)
            reached = {writer: len(futures) + 100 for writer, futures in sent.items()}
            while any(len(sent[writer]) < count for writer, count in reached.items()):
                stop.wait(0.01)
        stop.set()
        for thread in writers:
            thread.join()
        for futures in sent.values():
            assert [future.exception(WAIT_S) for future in futures if future.exception(WAIT_S)] == []
    found = _spans(settings)
    expected = {f"s{writer * 1_000_000 + n}" for writer, futures in sent.items() for n in range(len(futures))}
    assert {record.name for record in found} == expected
    cut = [record for record in found if "cut" in record.attributes]
    assert 0 < len(cut) < len(found) / 10
