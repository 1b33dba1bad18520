"""What a tracer remembers, and that traces which run at once stay apart: tasks, threads, pools, processes, stores."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from lightstream.producers import (
    DummyTracer,
    OtelTracer,
    attempt_environment,
    clear_active_tracer,
    emit_message,
    emit_reward,
    find_final_reward,
    get_active_tracer,
    get_message_value,
    operation,
    set_active_tracer,
)
from lightstream.producers.tracer import attempt_here
from lightstream.producers.tracer.dummy import DummySpanRecordingContext
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import PublishError
from lightstream.schemas.records import SpanRecord
from lightstream.schemas.types import Span
from lightstream.store_views.stores import InMemoryLightningStore
from tests.producers.support import read_spans
from tests.support.waiting import eventually

SpansInLog = Callable[[], list[SpanRecord]]
ROLLOUTS = [f"r{number}" for number in range(8)]


def owners(spans: list[SpanRecord]) -> dict[str, str | None]:
    """What each message says -> whose it is."""
    return {str(span.attributes["agentlightning.message.body"]): span.rollout_id for span in spans}


def test_the_last_trace(tracer: OtelTracer) -> None:
    assert OtelTracer(exporter=tracer.exporter).get_last_trace() == []
    with tracer.trace_context(rollout_id="r", attempt_id="r-a1") as otel, otel.start_as_current_span("whole"):
        emit_reward(0.5)
        assert find_final_reward(tracer.get_last_trace()) == 0.5
    spans = tracer.get_last_trace()
    assert [(span.name, span.rollout_id, span.attempt_id, span.sequence_id) for span in spans] == [
        ("agentlightning.annotation", "r", "r-a1", 1),
        ("whole", "r", "r-a1", 2),
    ]
    assert spans[0].attributes == {"agentlightning.reward.0.name": "primary", "agentlightning.reward.0.value": 0.5}
    assert spans[0].parent_id == spans[1].span_id
    with tracer.trace_context():
        emit_message("of nobody")
    (span,) = tracer.get_last_trace()
    assert (get_message_value(span), span.rollout_id) == ("of nobody", "rollout-dummy")
    assert tracer.trace_run(lambda: emit_reward(1.0)).status.status_code == "OK"
    assert [span.name for span in tracer.get_last_trace()] == ["agentlightning.annotation"]


def test_each_task_sees_its_own_last_trace(tracer: OtelTracer, spans_in_log: SpansInLog) -> None:
    """Interleaved by a barrier: all are inside at once."""

    async def one(rollout: str, inside: asyncio.Barrier) -> list[str | None]:
        async with tracer.trace_context(rollout_id=rollout, attempt_id="a"):
            await inside.wait()
            emit_message(f"{rollout} first")
            await asyncio.gather(below(f"{rollout} below"), asyncio.to_thread(emit_message, f"{rollout} thread"))
            await inside.wait()
        await inside.wait()
        return [get_message_value(span) for span in tracer.get_last_trace()]

    async def below(text: str) -> None:
        await asyncio.sleep(0)
        emit_message(text)

    async def main() -> list[list[str | None]]:
        inside = asyncio.Barrier(len(ROLLOUTS))
        return await asyncio.gather(*(one(rollout, inside) for rollout in ROLLOUTS))

    for rollout, seen in zip(ROLLOUTS, asyncio.run(main()), strict=True):
        assert sorted(map(str, seen)) == [f"{rollout} {what}" for what in ("below", "first", "thread")]
    assert all(rollout == text.split()[0] for text, rollout in owners(spans_in_log()).items())


def test_threads_and_pools_of_an_agent_stay_in_its_attempt(tracer: OtelTracer, spans_in_log: SpansInLog) -> None:
    """One pool serves all of them; its threads began in the first one's attempt."""
    inside = threading.Barrier(len(ROLLOUTS))

    def run(rollout: str, pool: ThreadPoolExecutor) -> None:
        with tracer.trace_context(rollout_id=rollout, attempt_id="a"):
            inside.wait()
            thread = threading.Thread(target=emit_message, args=(f"{rollout} thread",))
            thread.start()
            for done in [pool.submit(emit_message, f"{rollout} pool {number}") for number in range(4)]:
                done.result()
            thread.join()
            assert get_active_tracer() is tracer
            inside.wait()
        assert len(tracer.get_last_trace()) == 5

    with ThreadPoolExecutor(2) as pool, ThreadPoolExecutor(len(ROLLOUTS)) as agents:
        for agent in [agents.submit(run, rollout, pool) for rollout in ROLLOUTS]:
            agent.result()
        assert pool.submit(attempt_here).result() is None
    found = owners(spans_in_log())
    assert len(found) == 5 * len(ROLLOUTS)
    assert all(rollout == text.split()[0] for text, rollout in found.items())


def test_a_thread_that_outlives_its_attempt_belongs_to_none(tracer: OtelTracer, spans_in_log: SpansInLog) -> None:
    left, seen = threading.Event(), list[object]()

    def serve() -> None:
        emit_message("while it runs")
        left.wait(300)
        emit_message("afterwards")
        seen.extend([attempt_here(), get_active_tracer()])

    thread = threading.Thread(target=serve)
    with tracer.trace_context(rollout_id="r", attempt_id="a"):
        thread.start()
        eventually(lambda: len(tracer.get_last_trace()) == 1)
    with tracer.trace_context(rollout_id="other", attempt_id="a"):
        left.set()
        thread.join()
    tracer.flush()
    assert owners(spans_in_log()) == {"while it runs": "r", "afterwards": None}
    assert seen == [None, None]


CHILD = """
from lightstream.producers import OtelTracer, emit_message
from lightstream.producers.exporter import KafkaSpanExporter
KafkaSpanExporter.shutdown.__defaults__ = (100.0,)  # a busy machine connects in more than ten seconds
tracer = OtelTracer()
emit_message("child's")
tracer.close()
"""


def test_a_child_process_belongs_to_the_attempt(
    tracer: OtelTracer, settings: Settings, spans_in_log: SpansInLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=agent,lightstream.rollout_id=another")
    assert attempt_environment() == {}
    with tracer.trace_context(rollout_id="r,1=ü", attempt_id="r-a1"):
        environment = {**os.environ, **settings.to_environment(), **attempt_environment()}
    subprocess.run([sys.executable, "-c", CHILD], env=environment, timeout=120, check=True)
    (span,) = spans_in_log()
    assert (span.rollout_id, span.attempt_id) == ("r,1=ü", "r-a1")
    assert span.resource_attributes["service.name"] == "agent"


def _forked(tracer: OtelTracer) -> None:
    emit_message("forked")
    tracer.exporter.flush()


def test_a_forked_process_belongs_to_the_attempt(tracer: OtelTracer, spans_in_log: SpansInLog) -> None:
    with tracer.trace_context(rollout_id="r", attempt_id="a"):
        emit_message("parent")
        child = multiprocessing.get_context("fork").Process(target=_forked, args=(tracer,))
        child.start()
        child.join(300)
        assert child.exitcode == 0
    assert owners(spans_in_log()) == {"parent": "r", "forked": "r"}


def test_an_attempt_traced_twice_keeps_the_outer_route(settings: Settings, tracer: OtelTracer) -> None:
    store = InMemoryLightningStore()
    with tracer.trace_context(rollout_id="r", attempt_id="a"):
        rollout = asyncio.run(store.start_rollout("task"))
        rollout_id, attempt_id = rollout.rollout_id, rollout.attempt.attempt_id
        with tracer.trace_context(rollout_id=rollout_id, attempt_id=attempt_id):
            with tracer.trace_context(store=store, rollout_id=rollout_id, attempt_id=attempt_id):
                emit_message("into the store")
            emit_message("into the log")
        emit_message("outer")
        assert [get_message_value(span) for span in tracer.get_last_trace()] == ["outer"]
    assert owners(read_spans(settings)) == {"into the log": rollout.rollout_id, "outer": "r"}
    assert [get_message_value(span) for span in asyncio.run(all_spans(store, rollout.rollout_id))] == ["into the store"]


async def all_spans(store: InMemoryLightningStore, rollout_id: str) -> list[Span]:
    return list(await store.query_spans(rollout_id))


def test_a_store_takes_the_spans_of_a_worker(settings: Settings, tracer: OtelTracer) -> None:
    store = InMemoryLightningStore()

    async def one(number: int) -> str:
        rollout = await store.start_rollout(number)
        attempt_id = rollout.attempt.attempt_id
        async with tracer.trace_context(rollout_id=rollout.rollout_id, attempt_id=attempt_id) as otel:
            with otel.start_as_current_span("whole"):
                emit_reward(number)
        spans = await all_spans(store, rollout.rollout_id)
        assert [span.sequence_id for span in spans] == [1, 2]
        assert find_final_reward(spans) == number
        return rollout.rollout_id

    async def main() -> list[str]:
        return await asyncio.gather(*(one(number) for number in range(4)))

    with tracer.lifespan(store):
        assert len(set(asyncio.run(main()))) == 4
        with (
            pytest.raises(PublishError, match=r"missing from the store \(InMemoryLightningStore\).*nowhere"),
            tracer.trace_context(rollout_id="nowhere", attempt_id="a"),
        ):
            emit_reward(1.0)
    assert read_spans(settings) == []


def test_the_active_tracer(tracer: OtelTracer) -> None:
    assert get_active_tracer() is None
    dummy = DummyTracer()
    set_active_tracer(dummy)
    try:
        with pytest.raises(ValueError, match="already"):
            set_active_tracer(tracer)
        assert emit_reward(1.0).span_id == "", "the dummy sends nothing"
        with operation() as op:
            op.set_output(1)
        assert op.span().attributes == {"agentlightning.operation.output": 1}
        with tracer.trace_context():
            assert get_active_tracer() is tracer
        assert get_active_tracer() is dummy
    finally:
        clear_active_tracer()
    assert get_active_tracer() is None


def test_the_dummy_notes_what_fails() -> None:
    opened: list[DummySpanRecordingContext] = []

    def fail() -> None:
        with DummyTracer().operation_context("o", {"a": 1}) as recording:
            opened.append(recording)
            with pytest.raises(ValueError, match="has not ended"):
                recording.get_recorded_span()
            raise KeyError("gone")

    with pytest.raises(KeyError):
        fail()
    told = opened[0].get_recorded_span()
    assert (told.status.status_code, told.attributes["exception.type"]) == ("ERROR", "KeyError")
    assert told.attributes["a"] == 1
