"""A topic that refuses records for another reason than their size: their writers go on, and a dead letter says why."""

from __future__ import annotations

import random
from contextlib import closing

import pytest

from lightstream.runtime.kafka import KafkaPublisher, Outgoing
from lightstream.runtime.settings import Settings
from lightstream.schemas.codec import Codec
from lightstream.schemas.errors import RecordRefusedError, RecordTooLargeError
from lightstream.schemas.records import DeadLetter, DeadLetterReason, SpanRecord
from lightstream.schemas.topics import DEAD_LETTERS, SPANS, TRAJECTORIES
from tests.producers.support import read_records
from tests.support.topic_limits import refuse_records

CODEC = Codec()
WAIT_S = 120


def _span(number: int) -> SpanRecord:
    """One that takes longer than a millisecond on its way, so that the topic finds it too old."""
    noise = random.Random(number).randbytes(2_000_000)
    return SpanRecord(
        trace_id=f"{number:032x}", span_id=f"{number:016x}", name=f"s{number}", attributes={"noise": noise}
    )


def test_a_record_that_is_refused_is_a_dead_letter_or_told(settings: Settings) -> None:
    refuse_records(settings, SPANS)
    record = _span(1)

    def smaller(_error: RecordTooLargeError) -> Outgoing:
        raise AssertionError("nothing is cut: the size is not the reason")

    with closing(KafkaPublisher(settings, linger_ms=20)) as publisher:
        replaced = publisher.publish(SPANS, record.trace_id, record, instead=smaller)
        told = publisher.publish(SPANS, record.trace_id, record)
        elsewhere = publisher.publish(TRAJECTORIES, record.trace_id, record)
        assert replaced.result(WAIT_S).topic == DEAD_LETTERS.name
        with pytest.raises(RecordRefusedError, match="Is the clock of this machine right"):
            told.result(WAIT_S)
        assert elsewhere.result(WAIT_S).topic == TRAJECTORIES.name
        assert publisher.flush(WAIT_S) == 0
    (letter,) = [found for _, found in read_records(settings, DEAD_LETTERS) if isinstance(found, DeadLetter)]
    assert letter.reason is DeadLetterReason.BROKEN_RULE
    assert (letter.origin_topic, letter.key) == ("spans", record.trace_id.encode())
    assert CODEC.encode(record).startswith(letter.value or b"-")
    assert "timestamp" in letter.detail.lower()


def test_where_dead_letters_are_refused_too_the_writer_is_told(settings: Settings) -> None:
    refuse_records(settings, SPANS)
    refuse_records(settings, DEAD_LETTERS)
    record = _span(1)
    with closing(KafkaPublisher(settings, linger_ms=20)) as publisher:
        lost = publisher.publish(SPANS, record.trace_id, record, instead=lambda _error: None)
        with pytest.raises(RecordRefusedError, match="dead-letters"):
            lost.result(WAIT_S)
