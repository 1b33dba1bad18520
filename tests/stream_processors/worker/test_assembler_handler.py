"""The assembler's shell without Kafka: what cannot be read or written costs nothing beside it, and stops nobody."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from concurrent.futures import Future

import pytest

from lightstream.runtime.clock import SystemClock
from lightstream.runtime.kafka import BY_KEY, Headers, Instead, Outgoing, Position, run_headers
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import RecordError, RecordTooLargeError
from lightstream.schemas.packing import pack_int32
from lightstream.schemas.records import (
    AttemptClosed,
    AttemptOpened,
    DeadLetter,
    DeadLetterReason,
    DropReason,
    Record,
    SpanRecord,
    Trajectory,
)
from lightstream.schemas.topics import DEAD_LETTERS, SPANS, TRAJECTORIES, Topic
from lightstream.stream_processors.core.assembly import _buffer
from lightstream.stream_processors.core.credit import register_credit_rule
from lightstream.stream_processors.worker.assembler_handler import AssemblerHandler
from lightstream.stream_processors.worker.context import WorkerContext
from lightstream.stream_processors.worker.inbox import LogRecord
from tests.stream_processors.assembly.build import closed, framework_span, opened, proxy_span, reward_span
from tests.support.json_lines import logged_as_json

from .harness import CODEC

CUT = "cut \ud83d"
AnyRecord = SpanRecord | AttemptOpened | AttemptClosed

register_credit_rule(CUT, lambda steps, reward: [reward] * len(steps))


class Published:
    """A publisher that keeps what it is given, and cannot write the trajectories of some rollouts, nor large ones."""

    def __init__(self, unwritable: Sequence[str] = (), record_bytes_max: int = 1 << 25) -> None:
        self.unwritable = unwritable
        self.record_bytes_max = record_bytes_max
        self.trajectories: list[Trajectory] = []
        self.dead_letters: list[DeadLetter] = []

    def encoded(self, topic: Topic, record: Record) -> bytes:
        if isinstance(record, Trajectory) and record.rollout_id in self.unwritable:
            raise RecordError("a Trajectory cannot be written as Avro")
        encoded = CODEC.encode(record)
        if len(encoded) > self.record_bytes_max:
            raise RecordTooLargeError("a record is too large.", len(encoded), self.record_bytes_max)
        return encoded

    def publish_all(self, records: Sequence[Outgoing]) -> tuple[int, Future[list[Position]]]:
        for record in records:
            decoded = CODEC.decode(record.value)
            if record.topic is TRAJECTORIES and isinstance(decoded, Trajectory):
                assert (record.headers or [])[:1] == run_headers(decoded.run_id)
                self.trajectories.append(decoded)
            elif record.topic is DEAD_LETTERS and isinstance(decoded, DeadLetter):
                self.dead_letters.append(decoded)
        durable: Future[list[Position]] = Future()
        durable.set_result([])
        return len(records), durable

    def publish(
        self,
        topic: Topic,
        key: str,
        record: Record | None,
        *,
        headers: Headers | None = None,
        partition: int = BY_KEY,
        instead: Instead | None = None,
    ) -> Future[Position]:
        raise NotImplementedError

    def flush(self, timeout_s: float) -> int:
        return 0


def handled(records: Sequence[AnyRecord], published: Published, settings: Settings | None = None) -> None:
    """Let a worker take them as one batch; all of it must then be committed."""

    async def scenario() -> None:
        context = WorkerContext(settings or Settings.load(), published, CODEC, SystemClock(), "tests")
        handler = AssemblerHandler(context, 0)
        through = await handler.handle([_logged(record, offset) for offset, record in enumerate(records)])
        assert through == len(records)
        assert handler.held_back() is None
        await handler.tick()
        handler.close()

    asyncio.run(scenario())


async def test_what_waits_for_the_log_to_be_read_is_held_back_in_front_of_an_opening_that_comes_again() -> None:
    """Else whoever began there would take the repeat for the beginning of an attempt."""
    context = WorkerContext(Settings.load(), Published(), CODEC, SystemClock(), "tests")
    handler = AssemblerHandler(context, 0)
    unknown = proxy_span(2, attempt=7)
    first: list[AnyRecord] = [opened(), unknown, opened(), proxy_span(1), closed()]
    then: list[AnyRecord] = [opened("r2"), closed("r2")]
    for begin, records in ((10, first), (15, then)):
        logged = [_logged(record, offset) for offset, record in enumerate(records, start=begin)]
        assert await handler.handle(logged) == begin + len(records)
        assert handler.held_back() == 10, "not 11, where the span lies that is looked for"
    handler.close()


def test_text_cut_within_a_character_stops_no_worker() -> None:
    agent = framework_span(2, {"metadata": json.dumps({"lc_agent_name": CUT})})
    error = json.dumps({"error": {"message": CUT}})
    failed = framework_span(1, {"openinference.span.kind": "LLM", "output.value": error}, rollout_id="r2")
    published = Published()
    handled([opened(), proxy_span(1, parent=2), agent, closed(), opened("r2"), failed, closed("r2")], published)
    first, second = published.trajectories
    assert [t.agent_name for t in first.triplets] == ["cut ?"]
    assert [(d.reason, d.detail) for d in second.drops] == [(DropReason.CALL_FAILED, "cut ?")]


def test_a_trajectory_with_other_text_that_cannot_be_written_goes_out_with_replacements() -> None:
    published = Published()
    settings = Settings.load().model_copy(update={"credit": CUT})
    handled([opened(), proxy_span(1), reward_span(2, 0.5), closed()], published, settings)
    (trajectory,) = published.trajectories
    assert trajectory.credit == "cut ?"
    assert [t.reward for t in trajectory.triplets] == [0.5]
    assert [t.prompt_token_ids for t in trajectory.triplets] == [pack_int32([1, 2, 3])]


def test_a_trajectory_that_cannot_be_written_at_all_is_a_dead_letter_and_others_go_out() -> None:
    published = Published(unwritable=["r1"])
    handled([opened(), opened("r2"), proxy_span(1), closed(), closed("r2")], published)
    assert [t.rollout_id for t in published.trajectories] == ["r2"]
    assert [(d.reason, d.origin_offset) for d in published.dead_letters] == [(DeadLetterReason.BROKEN_RULE, 3)]


def test_log_lines_have_the_ids_of_what_they_are_about(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(span: SpanRecord) -> int | None:
        raise KeyError("boom")

    monkeypatch.setattr(_buffer, "answer_fingerprint", fails)
    other: list[AnyRecord] = [opened("r2"), proxy_span(1, rollout_id="r2"), closed("r2")]
    with logged_as_json() as lines:
        handled([opened(run_id="run"), *other, closed()], Published(unwritable=["r1"]))
    assert [(line["message"][:20], line.get("run_id"), line["rollout_id"], line["attempt_id"]) for line in lines()] == [
        ("the assembler failed", None, "r2", "r2-a1"),
        ("dead letter spans-0-", None, "r2", "r2-a1"),
        ("a trajectory of roll", "run", "r1", "r1-a1"),
        ("dead letter spans-0-", None, "r1", "r1-a1"),
    ]


@pytest.mark.parametrize(("record_bytes_max", "calls"), [(3_000, 10), (700, 0)])
def test_an_attempt_always_ends_in_a_trajectory(record_bytes_max: int, calls: int) -> None:
    """Without its tokens, and where that is still too large, without the list of its calls."""
    published = Published(record_bytes_max=record_bytes_max)
    settings = Settings.load().model_copy(update={"large_records_dir": None})
    spans = [proxy_span(n, range(200), range(200)) for n in range(10)]
    handled([opened(), *spans, closed()], published, settings)
    (trajectory,) = published.trajectories
    assert published.dead_letters == []
    assert (trajectory.final, trajectory.triplets, len(trajectory.drops)) == (True, [], calls)
    assert {drop.reason for drop in trajectory.drops} <= {DropReason.TOO_LARGE}
    assert trajectory.full_from_offset == (-1 if calls else 0)


def test_what_is_wrong_is_told_in_text_that_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(span: SpanRecord) -> int | None:
        raise KeyError(CUT) from None

    monkeypatch.setattr(_buffer, "answer_fingerprint", fails)
    published = Published()
    handled([opened(), proxy_span(1), closed()], published)
    assert [t.triplets for t in published.trajectories] == [[]]
    assert [d.reason for d in published.dead_letters] == [DeadLetterReason.BROKEN_RULE]


async def test_a_rollout_waits_whole_for_the_version_that_can_read_a_span_of_it_and_others_go_on() -> None:
    published = Published()
    handler = AssemblerHandler(WorkerContext(Settings.load(), published, CODEC, SystemClock(), "tests"), 0)
    records: list[AnyRecord] = [opened("before"), opened(), proxy_span(1), proxy_span(2), closed("before"), closed()]
    records += [opened("other"), proxy_span(3, rollout_id="other"), closed("other")]
    logged = [_logged(record, offset) for offset, record in enumerate(records)]
    logged[3] = _by_another_version(logged[3])
    await handler.handle(logged)
    assert [trajectory.rollout_id for trajectory in published.trajectories] == ["before", "other"]
    assert published.dead_letters == []
    assert handler.held_back() == 3
    assert handler.unread.counts == {"9.0.0": 2}  # the span, and the end behind it

    upgraded = AssemblerHandler(WorkerContext(Settings.load(), published, CODEC, SystemClock(), "tests"), 0)
    committed = min(await handler.handle([_logged(opened("last"), len(logged))]), 3)
    await upgraded.handle([_logged(record, offset) for offset, record in enumerate(records) if offset >= committed])
    (attempt,) = [
        trajectory for trajectory in published.trajectories if trajectory.rollout_id == opened().rollout.rollout_id
    ]
    assert [triplet.span_id for triplet in attempt.triplets] == [proxy_span(1).span_id, proxy_span(2).span_id]
    handler.close()
    upgraded.close()


def _by_another_version(record: LogRecord) -> LogRecord:
    """It by a schema that is not known here."""
    value = record.value or b""
    return record._replace(value=value[:2] + bytes(8) + value[10:], writer="9.0.0")


def _logged(record: AnyRecord, offset: int) -> LogRecord:
    rollout_id = record.rollout.rollout_id if isinstance(record, AttemptOpened) else record.rollout_id
    assert rollout_id is not None
    return LogRecord(SPANS.name, 0, offset, rollout_id.encode(), CODEC.encode(record), 1_000 + offset)
