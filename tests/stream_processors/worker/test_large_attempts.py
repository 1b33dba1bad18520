"""An attempt of many spans: while it is finished and written out, its partition goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import closing

import pytest

from lightstream.runtime.clock import SystemClock
from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import PublishError
from lightstream.schemas.records import AttemptClosed, AttemptOpened, SpanRecord, Trajectory
from lightstream.schemas.topics import SPANS, TRAJECTORIES
from lightstream.stream_processors.core.assembly import LONG_SPANS_MIN, Assembler, DeferredAssembly
from lightstream.stream_processors.core.credit import CreditStep, register_credit_rule
from lightstream.stream_processors.worker.assembler_handler import AssemblerHandler
from lightstream.stream_processors.worker.context import WorkerContext
from lightstream.stream_processors.worker.deferred_assembly import LARGE_WAITING_MAX, LargeAttempts
from lightstream.stream_processors.worker.inbox import LogRecord
from tests.stream_processors.assembly.build import closed, opened, proxy_span, reward_span

from .harness import CODEC, TopicReader

WAIT_S = 300.0
others_are_out = threading.Event()


def waits_for_the_others(steps: Sequence[CreditStep], reward: float | None) -> list[float | None]:
    """A rule that, of large attempts, ends only once other trajectories are out."""
    if len(steps) >= LONG_SPANS_MIN:
        assert others_are_out.wait(WAIT_S), "the trajectory of another attempt did not come out meanwhile"
    return [reward] * len(steps)


register_credit_rule("waits_for_the_others", waits_for_the_others)


def test_a_large_attempt_holds_up_no_other_of_its_partition(settings: Settings) -> None:
    """What is committed stays below its opening until its trajectory is out, and revisions come behind that."""
    settings = settings.model_copy(update={"credit": "waits_for_the_others", "late_span_s_max": 1e10})
    records: list[SpanRecord | AttemptOpened | AttemptClosed] = [
        opened("before"),
        closed("before"),
        opened(),
        *(proxy_span(number) for number in range(1, LONG_SPANS_MIN + 1)),
        opened("behind"),
        closed(),
        reward_span(LONG_SPANS_MIN + 1, 0.5),  # late
        closed("behind"),
    ]
    others_are_out.clear()
    reader = TopicReader(settings, TRAJECTORIES)

    async def scenario(publisher: KafkaPublisher) -> None:
        context = WorkerContext(settings, publisher, CODEC, SystemClock(), "tests")
        handler = AssemblerHandler(context, 0)
        through = await handler.handle(_logged(publisher, records))
        assert through == len(records)
        assert handler.held_back() == 2, "the large attempt's opening"
        others = await asyncio.to_thread(reader.wait_for, 2)
        assert {t.rollout_id for t in others if isinstance(t, Trajectory)} == {"before", "behind"}
        others_are_out.set()
        await asyncio.to_thread(reader.wait_for, 4)
        while handler.held_back() is not None:
            await handler.tick()
            await asyncio.sleep(0)
        handler.close()

    with closing(KafkaPublisher(settings)) as publisher:
        asyncio.run(asyncio.wait_for(scenario(publisher), 2 * WAIT_S))
    made = [t for t in reader.records if isinstance(t, Trajectory) and t.rollout_id == "r1"]
    assert [(t.revision, t.call_count, t.reward) for t in made] == [
        (0, LONG_SPANS_MIN, None),
        (1, LONG_SPANS_MIN, 0.5),
    ]


def test_many_large_attempts_wait_their_turn_and_a_failure_ends_the_work() -> None:
    """Beyond a limit the partition waits; what is not done stays uncommitted, a failed one too."""
    assembler = Assembler()
    record = LogRecord(SPANS.name, 0, 0, b"r", None)
    finished: list[int] = []
    may_finish, fails = asyncio.Event(), asyncio.Event()

    async def finish(attempt: DeferredAssembly, _: LogRecord) -> None:
        await may_finish.wait()
        if attempt.first_offset == LARGE_WAITING_MAX:
            fails.set()
            raise PublishError("Kafka is away")
        finished.append(attempt.first_offset)

    def unfinished(offset: int) -> DeferredAssembly:
        assembler.on_record(opened(f"r{offset}"), offset)
        return assembler.detach(closed(f"r{offset}"), offset)

    async def scenario() -> None:
        large = LargeAttempts(finish)
        for offset in range(LARGE_WAITING_MAX):
            await large.add(unfinished(offset), record)
        last = asyncio.create_task(large.add(unfinished(LARGE_WAITING_MAX), record))
        await asyncio.sleep(0)
        assert not last.done()
        assert large.oldest == 0
        may_finish.set()
        await last
        await fails.wait()
        await asyncio.sleep(0)
        with pytest.raises(PublishError, match="Kafka is away"):
            large.check()
        assert finished == list(range(LARGE_WAITING_MAX))
        assert large.oldest == LARGE_WAITING_MAX

    asyncio.run(asyncio.wait_for(scenario(), WAIT_S))


def _logged(
    publisher: KafkaPublisher, records: Sequence[SpanRecord | AttemptOpened | AttemptClosed]
) -> list[LogRecord]:
    """The records, written to partition 0 and read from there."""
    written = [(_rollout_of(record), record) for record in records]
    places = [publisher.publish(SPANS, key, record, partition=0) for key, record in written]
    return [
        LogRecord(SPANS.name, 0, place.result(WAIT_S).offset, key.encode(), CODEC.encode(record))
        for place, (key, record) in zip(places, written, strict=True)
    ]


def _rollout_of(record: SpanRecord | AttemptOpened | AttemptClosed) -> str:
    rollout_id = record.rollout.rollout_id if isinstance(record, AttemptOpened) else record.rollout_id
    assert rollout_id is not None
    return rollout_id
