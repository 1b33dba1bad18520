"""Tracers that stand on libraries of others: Weave's, installed here; AgentOps's, where it is installed."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterator

import cloudpickle  # type: ignore[import-untyped]  # it has no types
import pytest
import weave

from lightstream.producers import AgentOpsTracer, WeaveTracer, emit_reward, find_final_reward, get_active_tracer
from lightstream.producers.exporter import KafkaSpanExporter
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError
from lightstream.schemas.records import SpanRecord

SpansInLog = Callable[[], list[SpanRecord]]


@pytest.fixture
def weave_tracer(exporter: KafkaSpanExporter) -> Iterator[WeaveTracer]:
    tracer = WeaveTracer(exporter=exporter)
    with tracer.lifespan():
        yield tracer
    tracer.close()


@weave.op
def fails(_what: str) -> None:
    raise KeyError("gone")


@weave.op
def double(number: int, by: list[int]) -> dict[str, int]:
    with pytest.raises(KeyError):
        fails("x")
    return {"twice": number * by[0]}


@weave.op
async def think(rollout: str) -> str:
    await asyncio.sleep(0)
    double(1, [2])
    return rollout


def test_a_weave_operation_is_a_span(weave_tracer: WeaveTracer, spans_in_log: SpansInLog) -> None:
    with weave_tracer.trace_context("whole", rollout_id="r", attempt_id="a"), weave.attributes({"seed": 7}):
        assert get_active_tracer() is weave_tracer
        assert double(3, [2, 3]) == {"twice": 6}
        emit_reward(1.0)
    spans = {span.name: span for span in spans_in_log()}
    assert {span.rollout_id for span in spans.values()} == {"r"}
    assert spans["double"].parent_id == spans["agentlightning.annotation"].parent_id == spans["whole"].span_id
    assert spans["fails"].parent_id == spans["double"].span_id
    assert spans["double"].attributes == {
        "agentlightning.operation.name": "double",
        "seed": 7,
        "agentlightning.operation.input.number": 3,
        "agentlightning.operation.input.by": [2, 3],
        "agentlightning.operation.output.twice": 6,
    }
    assert (spans["double"].status, spans["fails"].status) == ("ok", "error")
    assert spans["fails"].attributes["exception.type"] == "KeyError"
    assert find_final_reward(weave_tracer.get_last_trace()) == 1.0


def test_a_weave_tracer_reaches_another_process(settings: Settings, spans_in_log: SpansInLog) -> None:
    """Its copy there has a client of its own."""
    with contextlib.closing(WeaveTracer(project_name="p", settings=settings)) as tracer:
        copy = cloudpickle.loads(cloudpickle.dumps(tracer))
    assert (copy.project_name, copy.instrument_managed) == ("p", True)
    with contextlib.closing(copy), copy.lifespan(), copy.trace_context(rollout_id="r", attempt_id="a"):
        assert double(3, [2]) == {"twice": 6}
    assert {span.name for span in spans_in_log()} == {"double", "fails"}


def test_weave_operations_of_attempts_at_once_stay_apart(weave_tracer: WeaveTracer, spans_in_log: SpansInLog) -> None:
    rollouts = [f"r{number}" for number in range(8)]

    async def agent(rollout: str) -> None:
        async with weave_tracer.trace_context(rollout_id=rollout, attempt_id="a"):
            assert await think(rollout) == rollout

    async def main() -> None:
        await asyncio.gather(*map(agent, rollouts))

    asyncio.run(main())
    spans = spans_in_log()
    assert len(spans) == 3 * len(rollouts)
    for rollout in rollouts:
        mine = {span.name: span for span in spans if span.rollout_id == rollout}
        assert mine["think"].attributes["agentlightning.operation.output"] == rollout
        assert mine["double"].parent_id == mine["think"].span_id


def test_an_applications_own_weave_client_goes_on(exporter: KafkaSpanExporter, spans_in_log: SpansInLog) -> None:
    """Without management ours follows whatever client there is; with none, there are no such spans."""
    tracer = WeaveTracer(instrument_managed=False, exporter=exporter)
    with tracer.lifespan(), tracer.trace_context(rollout_id="r", attempt_id="a"):
        assert weave.get_client() is None
        double(1, [1])
    assert spans_in_log() == []
    tracer.close()


WITHOUT = """
import sys
sys.modules["weave"] = None
from lightstream.producers import WeaveTracer
WeaveTracer()
"""


def test_a_missing_library_is_named() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    assert "SettingsError: WeaveTracer needs the package 'weave', which is not installed." in done.stderr


def test_agentops(exporter: KafkaSpanExporter, spans_in_log: SpansInLog) -> None:
    """It asks for older libraries than the lock has, so it is not installed here by itself."""
    if importlib.util.find_spec("agentops") is None:
        with pytest.raises(SettingsError, match=r"AgentOpsTracer needs the package 'agentops'.*pip install agentops"):
            AgentOpsTracer(exporter=exporter)
        return
    from agentops.sdk.decorators import operation  # type: ignore[import-not-found]  # as said above

    @operation  # type: ignore[untyped-decorator]  # as said above
    def work(number: int) -> int:
        return number + 1

    tracer = AgentOpsTracer(exporter=exporter)
    with tracer.lifespan():
        with tracer.trace_context(rollout_id="r", attempt_id="a"):
            assert work(1) == 2
            emit_reward(1.0)
        assert find_final_reward(tracer.get_last_trace()) == 1.0
    spans = {span.name: span for span in spans_in_log()}
    assert {span.rollout_id for span in spans.values()} == {"r"}
    assert spans["work.task"].parent_id == spans["r.session"].span_id
    tracer.close()
