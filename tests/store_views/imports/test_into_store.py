"""Imported traces become rollouts: each once, whatever happens to others, or to the import."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lightstream.runtime.clock import ManualClock
from lightstream.schemas.errors import ServiceUnavailableError, StoreError
from lightstream.schemas.types import Span
from lightstream.store_views.imports import ImportedTrace, import_traces, read_traces
from lightstream.store_views.imports.into_store import AT_ONCE_MAX
from lightstream.store_views.stores import InMemoryLightningStore

from .build import ANY_LLM, CALL, GENERATION, otlp, saved


async def import_twice(traces: list[ImportedTrace]) -> tuple[Any, Any, list[Span], str]:
    store = InMemoryLightningStore()
    try:
        await store.start_rollout(traces[1].task, rollout_id=f"run-{traces[1].trace_id}")  # an import was interrupted
        first = await import_traces(store, traces, "run")
        second = await import_traces(store, traces, "run")
        rollout_id = f"run-{traces[0].trace_id}"
        rollout = await store.get_rollout_by_id(rollout_id)
        assert rollout is not None
        return first, second, list(await store.query_spans(rollout_id)), rollout.status
    finally:
        await store.close()


def test_each_trace_becomes_a_rollout_once(tmp_path: Path) -> None:
    traces = read_traces(saved(tmp_path / "a.jsonl", otlp("1" * 32, CALL), otlp("2" * 32, CALL), lines=True))
    first, second, spans, status = asyncio.run(import_twice(traces))
    assert (first.rollouts, first.spans, first.known) == (2, 2, 0)
    assert (second.rollouts, second.known) == (0, 2)
    assert status == "succeeded"
    assert [t.prompt["token_ids"] for t in ANY_LLM.adapt(spans)] == [[1, 2]]


async def test_an_import_is_finished_however_long_after_it_was_interrupted(tmp_path: Path) -> None:
    traces = read_traces(saved(tmp_path / "a.json", otlp("1" * 32, CALL)))

    class Away(InMemoryLightningStore):
        goes = False

        async def add_many_spans(self, spans: Sequence[Span]) -> Sequence[Span]:
            if self.goes:
                raise ServiceUnavailableError("it is away.")
            return await super().add_many_spans(spans)

    clock = ManualClock()
    store = Away(clock=clock)
    store.goes = True
    with pytest.raises(ServiceUnavailableError):
        await import_traces(store, traces, "run")
    clock.advance(30 * 24 * 3600.0)
    store.goes = False
    assert (await import_traces(store, traces, "run")).spans == 1
    (rollout,) = await store.query_rollouts()
    assert rollout.status == "succeeded"
    assert (await import_traces(store, traces, "run")).known == 1
    await store.close()


async def test_a_rollout_that_somebody_else_ended_is_no_success(tmp_path: Path) -> None:
    traces = read_traces(saved(tmp_path / "a.json", otlp("1" * 32, CALL)))

    class Cancelling(InMemoryLightningStore):
        async def add_many_spans(self, spans: Sequence[Span]) -> Sequence[Span]:
            await self.cancel_rollout(spans[0].rollout_id)
            return await super().add_many_spans(spans)

    store = Cancelling()
    with pytest.raises(StoreError, match="somebody else"):
        await import_traces(store, traces, "run")
    assert (await import_traces(store, traces, "run")).known == 1
    await store.close()


async def test_a_trace_in_several_files_is_one_rollout(tmp_path: Path) -> None:
    root = {"spanId": "a" * 16, "name": "root", "endTimeUnixNano": "1700000009000000000"}
    first = read_traces(saved(tmp_path / "a.json", otlp("1" * 32, root)))
    second = read_traces(saved(tmp_path / "b.json", otlp("1" * 32, CALL)))
    store = InMemoryLightningStore()
    report = await import_traces(store, [*first, *second, *first], "run")
    assert (report.rollouts, report.spans, report.known) == (1, 2, 0)
    (rollout,) = await store.query_rollouts()
    spans = await store.query_spans(rollout.rollout_id)
    assert [(s.sequence_id, s.name) for s in spans] == [(1, "openai.chat.completion"), (2, "root")]
    await store.close()


async def test_what_a_rollout_lacks_that_was_imported_before_is_told(tmp_path: Path) -> None:
    first = read_traces(saved(tmp_path / "a.json", otlp("1" * 32, {"spanId": "a" * 16, "name": "root"})))
    second = read_traces(saved(tmp_path / "b.json", otlp("1" * 32, CALL)))
    store = InMemoryLightningStore()
    await import_traces(store, first, "run")
    report = await import_traces(store, second, "run")
    assert (report.rollouts, report.known, report.incomplete, report.spans_missing) == (0, 1, 1, 1)
    report = await import_traces(store, first, "run")
    assert (report.known, report.incomplete, report.spans_missing) == (1, 0, 0)
    await store.close()


async def test_zero_times_and_text_that_was_cut_can_be_stored(tmp_path: Path) -> None:
    rows = [
        GENERATION,
        GENERATION | {"traceId": "t-2", "startTime": "0001-01-01T00:00:00Z"},
        GENERATION | {"traceId": "t-3", "output": "cut \ud83d", "input": "whole \U0001f600"},
    ]
    traces = read_traces(saved(tmp_path / "rows.jsonl", *rows, lines=True))
    assert [trace.spans[0].start_time is None for trace in traces] == [False, True, False]
    said = traces[2].spans[0].attributes
    assert (said["langfuse.observation.output"], said["langfuse.observation.input"]) == ("cut ?", "whole \U0001f600")
    store = InMemoryLightningStore()
    assert (await import_traces(store, traces, "run")).rollouts == 3
    await store.close()


def alone(number: int, **fields: Any) -> ImportedTrace:
    """A trace of one span."""
    trace_id = f"{number:032x}"
    span = Span.from_attributes(attributes={}, trace_id=trace_id, span_id="a" * 16, name="one").model_copy(
        update=fields
    )
    return ImportedTrace(trace_id, None, [span])


async def test_a_trace_that_fails_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """The first error is raised in the end, the others are told of, and what went well stays."""
    traces = [alone(number) for number in range(2 * AT_ONCE_MAX)]
    traces[3:5] = [alone(3, start_time=1e12), alone(4, name="cut \ud83d")]
    store = InMemoryLightningStore()
    with caplog.at_level(logging.WARNING), pytest.raises(StoreError, match="start_time"):
        await import_traces(store, traces, "run")
    assert [traces[4].trace_id in record.getMessage() for record in caplog.records] == [True]
    ended = await store.query_rollouts(status_in=["succeeded"])
    assert len(ended) == len(traces) - 2
    report = await import_traces(store, [*traces[:3], alone(3), alone(4), *traces[5:]], "run")
    assert (report.rollouts, report.known) == (2, len(traces) - 2)
    await store.close()


async def test_nothing_is_begun_once_the_cluster_does_not_answer() -> None:
    class Away(InMemoryLightningStore):
        asked = 0

        async def add_many_spans(self, spans: Sequence[Span]) -> Sequence[Span]:
            self.asked += 1
            raise ServiceUnavailableError("it is away.")

    store = Away()
    traces = [alone(number) for number in range(4 * AT_ONCE_MAX)]
    traces[0].task = "cut \ud83d"
    with pytest.raises(ServiceUnavailableError, match="it is away"):
        await import_traces(store, traces, "run")
    assert 1 <= store.asked <= AT_ONCE_MAX
    await store.close()
