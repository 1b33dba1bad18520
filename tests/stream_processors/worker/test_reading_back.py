"""Late spans read back from a log that is a list: what is left out of it, and how often it is gone through."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from lightstream.runtime.settings import Settings
from lightstream.schemas.records import AttemptClosed, AttemptOpened, SpanRecord, Trajectory
from lightstream.schemas.topics import SPANS
from lightstream.stream_processors.core.assembly import (
    Assembler,
    AssemblyRules,
    DeferredAssembly,
    LateSpan,
    _buffer,
)
from lightstream.stream_processors.worker import deferred_assembly
from lightstream.stream_processors.worker.deferred_assembly import LateSpanReader, revisions_of
from lightstream.stream_processors.worker.inbox import LogRecord
from lightstream.stream_processors.worker.log_reader import LogReader
from lightstream.stream_processors.worker.unread import UnreadRecords
from tests.stream_processors.assembly.build import closed, framework_span, opened, proxy_span, reward_span

from .harness import CODEC

AnyRecord = SpanRecord | AttemptOpened | AttemptClosed
RULES = AssemblyRules()


class ListedLog(LogReader):
    """Records at the offsets 0, 1, …, stamped so.

    Attributes:
        taken: every offset that was read, in the order of the reading.
    """

    def __init__(self, records: Sequence[AnyRecord]) -> None:
        super().__init__(Settings.load(), "tests", SPANS, 0)
        self.logged = [
            LogRecord(SPANS.name, 0, offset, _rollout_of(record).encode(), CODEC.encode(record), 1_000 + offset)
            for offset, record in enumerate(records)
        ]
        self.taken: list[int] = []

    def ranges(self, ranges: Sequence[tuple[int, int]], stopped: threading.Event) -> Iterator[LogRecord]:
        for first, last in ranges:
            for record in self.logged[first : last + 1]:
                self.taken.append(record.offset)
                yield record

    def first_logged_at(self, unix_nano: int) -> int:
        return max(unix_nano - 1_000, 0)


def reader_of(log: LogReader, sent: list[Trajectory]) -> LateSpanReader:
    async def send(trajectories: Sequence[Trajectory]) -> None:
        sent.extend(trajectories)

    return LateSpanReader(log, CODEC, 0, RULES, send)


async def all_done(reader: LateSpanReader) -> None:
    while reader.oldest is not None:
        reader.check()
        await asyncio.sleep(0)


def late_spans_of(records: Sequence[AnyRecord]) -> list[LateSpan]:
    """What a worker that holds nothing has to read the log for; records that fail are dead letters."""
    assembler = Assembler(0, RULES, kept_spans_max=0, reads_back=True)
    for offset, record in enumerate(records):
        try:
            assembler.on_record(record, offset, 1_000 + offset)
        except ValueError:
            continue
    return assembler.take_to_read()


def test_a_span_that_was_a_dead_letter_is_left_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails_for_one(span: SpanRecord) -> int | None:
        if span.name == "poison":
            raise ValueError("no idea")
        return None

    monkeypatch.setattr(_buffer, "answer_fingerprint", fails_for_one)
    poison = proxy_span(2).model_copy(update={"name": "poison"})
    records: list[AnyRecord] = [opened(), proxy_span(1), poison, closed(), reward_span(3, 1.0)]
    late = late_spans_of(records)
    (revision,) = reader_of(ListedLog(records), []).read_back(late)
    assert [(t.response_id, t.reward) for t in revision.triplets] == [("resp-1", 1.0)]


def test_an_attempt_that_cannot_be_revised_keeps_no_other_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails_for_one(attempt: DeferredAssembly) -> Trajectory:
        if attempt.attempt_id == "r1-a1":
            raise ValueError("no idea")
        return trajectory(attempt)

    trajectory = DeferredAssembly.trajectory
    monkeypatch.setattr(DeferredAssembly, "trajectory", fails_for_one)
    names = ("r1", "r2")
    records: list[AnyRecord] = [record for name in names for record in (opened(name), closed(name))]
    records += [reward_span(1, 1.0, rollout_id=name) for name in names]
    assembler = Assembler(0, RULES)
    for offset, record in enumerate(records):
        assembler.on_record(record, offset)
    assert [t.rollout_id for t in revisions_of(assembler.take_revised())] == ["r2"]


def test_attempts_that_never_opened_cost_one_search_together() -> None:
    """Beside them, attempts that did are revised; and none is looked for again."""
    strangers = [framework_span(number, rollout_id=f"nobody-{number}") for number in range(100)]
    records: list[AnyRecord] = [opened(), proxy_span(1), closed(), *strangers, reward_span(2, 1.0)]
    log, sent = ListedLog(records), list[Trajectory]()
    reader = reader_of(log, sent)

    async def scenario() -> None:
        late = [span for record in strangers for span in late_spans_of([record])]
        reader.add([*late, LateSpan(("r1", "r1-a1"), len(records) - 1, 1_000, None)])
        await all_done(reader)
        reader.add(late)
        assert reader.oldest is None

    asyncio.run(scenario())
    assert [(t.rollout_id, t.revision, t.reward) for t in sent] == [("r1", 1, 1.0)]
    assert max(map(log.taken.count, log.taken)) == 2, "once to find what is there, once to read that"


def test_late_spans_of_too_many_attempts_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deferred_assembly, "ATTEMPTS_WAITING_MAX", 2)
    names = ("r1", "r2", "r3")
    records: list[AnyRecord] = [record for name in names for record in (opened(name), closed(name))]
    records += [reward_span(number, 1.0, rollout_id=name) for number in (1, 2) for name in names]
    log, sent = ListedLog(records), list[Trajectory]()
    reader = reader_of(log, sent)

    async def scenario() -> None:
        late = late_spans_of(records)
        reader.add(late)
        assert reader.oldest == len(names) * 2
        assert reader.refused_count == 2
        await all_done(reader)
        reader.add(late[-1:])
        await all_done(reader)

    asyncio.run(scenario())
    assert [(t.rollout_id, t.revision) for t in sent] == [("r1", 2), ("r2", 2), ("r3", 2)]


def _rollout_of(record: AnyRecord) -> str:
    return record.rollout.rollout_id if isinstance(record, AttemptOpened) else record.rollout_id or ""


@pytest.mark.parametrize("newer", [0, 1], ids=["opening", "span"])
async def test_a_rollout_that_another_version_wrote_of_is_not_revised_without_that_and_waits(newer: int) -> None:
    records: list[AnyRecord] = [opened(), proxy_span(1), closed(), reward_span(2, 1.0)]
    log = ListedLog(records)
    value = log.logged[newer].value or b""
    log.logged[newer] = log.logged[newer]._replace(value=value[:2] + bytes(8) + value[10:], writer="9.0.0")
    sent: list[Trajectory] = []

    async def send(trajectories: Sequence[Trajectory]) -> None:
        sent.extend(trajectories)

    unread = UnreadRecords()
    reader = LateSpanReader(log, CODEC, 0, RULES, send, unread)
    reader.add(replace(span, ranges=None) for span in late_spans_of(records))
    await all_done(reader)
    assert sent == []
    assert (unread.first_offset, unread.counts) == (3, {"9.0.0": 1})
    assert unread.takes(log.logged[3])
