"""An attempt of many spans: while it is finished and written out, the worker does its other work."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import closing

from lightstream.schemas.clock import SystemClock
from lightstream.schemas.kafka import KafkaPublisher
from lightstream.schemas.records import AttemptClosed, AttemptOpened, SpanRecord, Trajectory
from lightstream.schemas.settings import Settings
from lightstream.schemas.topics import SPANS, TRAJECTORIES
from lightstream.stream_processors.core.assembly import LONG_SPANS_MIN
from lightstream.stream_processors.core.credit import CreditStep, register_credit_rule
from lightstream.stream_processors.worker.assembler_handler import AssemblerHandler
from lightstream.stream_processors.worker.context import WorkerContext
from lightstream.stream_processors.worker.inbox import LogRecord
from tests.stream_processors.assembly.build import closed, opened, proxy_span, reward_span

from .harness import CODEC, TopicReader

WAIT_S = 60.0
other_work_done = threading.Event()


def waits_for_other_work(steps: Sequence[CreditStep], reward: float | None) -> list[float | None]:
    """A rule that, of large attempts, ends only if the event loop still turns."""
    if len(steps) >= LONG_SPANS_MIN:
        other_work_done.clear()
        assert other_work_done.wait(WAIT_S), "nothing else was done meanwhile"
    return [reward] * len(steps)


register_credit_rule("waits_for_other_work", waits_for_other_work)


def test_a_large_attempt_holds_up_nothing_else(settings: Settings) -> None:
    settings = settings.model_copy(update={"credit": "waits_for_other_work", "late_span_s_max": 1e10})
    records: list[SpanRecord | AttemptOpened | AttemptClosed] = [
        opened("r0"),
        closed("r0"),
        reward_span(1, 0.5, rollout_id="r0"),  # late: from now on, attempts that close are held for a while
        opened(),
        *(proxy_span(number) for number in range(1, LONG_SPANS_MIN + 1)),
        closed(),
        reward_span(LONG_SPANS_MIN + 1, 0.5),
    ]
    log = [LogRecord(SPANS.name, 0, offset, b"r1", CODEC.encode(record)) for offset, record in enumerate(records)]

    async def other_work() -> None:
        while True:
            other_work_done.set()
            await asyncio.sleep(0)

    async def scenario(publisher: KafkaPublisher) -> None:
        context = WorkerContext(settings, publisher, CODEC, SystemClock(), "tests")
        handler = AssemblerHandler(context, 0)
        beside = asyncio.create_task(other_work())
        for batch in (log[:-1], log[-1:]):
            await (await handler.handle(batch))
        beside.cancel()
        handler.close()

    with closing(KafkaPublisher(settings)) as publisher:
        asyncio.run(asyncio.wait_for(scenario(publisher), WAIT_S))
    made = TopicReader(settings, TRAJECTORIES).wait_for(3)
    trajectories = [t for t in made if isinstance(t, Trajectory) and t.rollout_id == "r1"]
    assert [(t.revision, t.call_count, t.reward) for t in trajectories] == [
        (0, LONG_SPANS_MIN, None),
        (1, LONG_SPANS_MIN, 0.5),
    ]
