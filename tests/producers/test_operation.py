"""Operations: functions and blocks as spans."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from lightstream.producers import NoActiveTracerError, OtelTracer, operation, reward
from lightstream.producers.emitter import OperationContext
from lightstream.schemas.records import DropReason, SpanRecord
from tests.stream_processors.assembly.build import ROLLOUT, assemble

SpansInLog = Callable[[], list[SpanRecord]]


def test_a_function_with_its_arguments_and_result(tracer: OtelTracer, spans_in_log: SpansInLog) -> None:
    @operation
    def add(a: int, *rest: int, scale: float = 1.0, **more: Any) -> dict[str, Any]:
        return {"sum": (a + sum(rest)) * scale, "more": more}

    @operation(category="plan", name="planning")
    async def plan(task: dict[str, Any]) -> list[str]:
        await asyncio.sleep(0)
        return [task["a"], "then"]

    assert (add.__name__, plan.__name__) == ("add", "plan")
    with tracer.trace_context(rollout_id="r", attempt_id="a"):
        assert add(1, 2, 3, scale=2.0, x="y") == {"sum": 12.0, "more": {"x": "y"}}
        assert asyncio.run(plan({"a": "b"})) == ["b", "then"]
    first, second = spans_in_log()
    assert first.name == second.name == "agentlightning.operation"
    assert first.attributes == {
        "agentlightning.operation.name": "add",
        "agentlightning.operation.input.a": 1,
        "agentlightning.operation.input.rest": [2, 3],
        "agentlightning.operation.input.scale": 2.0,
        "agentlightning.operation.input.more.x": "y",
        "agentlightning.operation.output.sum": 12.0,
        "agentlightning.operation.output.more.x": "y",
    }
    assert second.attributes == {
        "agentlightning.operation.name": "planning",
        "category": "plan",
        "agentlightning.operation.input.task.a": "b",
        "agentlightning.operation.output": ["b", "then"],
    }


def test_a_block(tracer: OtelTracer, spans_in_log: SpansInLog) -> None:
    with tracer.trace_context(rollout_id="r", attempt_id="a"):
        with operation(user={"id": 7}) as op:
            op.set_input("x", data=[1, None])
            op.set_output(object)
        with pytest.raises(KeyError), operation():
            raise KeyError("gone")
    told = op.span()
    first, second = spans_in_log()
    assert told.span_id == first.span_id
    assert (
        first.attributes.items()
        >= {
            "user.id": 7,
            "agentlightning.operation.input.args.0": "x",
            "agentlightning.operation.input.data.0": 1,
            "agentlightning.operation.input.data.1": "null",
            "agentlightning.operation.output": f'"{object!r}"',
        }.items()
    )
    assert told.attributes.items() >= first.attributes.items()
    assert (second.status, second.events[0].attributes["exception.type"]) == ("error", "KeyError")


def test_an_operation_follows_whoever_calls_it(tracer: OtelTracer, spans_in_log: SpansInLog) -> None:
    """Decorated before any tracer is there; each call is a span of the attempt it happens in."""

    @operation
    def inner() -> None: ...

    @operation
    def outer() -> None:
        inner()

    for rollout in ("r1", "r2"):
        with tracer.trace_context(rollout_id=rollout, attempt_id="a"):
            outer()
    spans = spans_in_log()
    for rollout in ("r1", "r2"):
        mine = {str(s.attributes["agentlightning.operation.name"]): s for s in spans if s.rollout_id == rollout}
        assert mine["inner"].parent_id == mine["outer"].span_id


def test_a_call_that_does_not_fit_fails_as_it_would(tracer: OtelTracer, spans_in_log: SpansInLog) -> None:
    @operation
    def one(a: int) -> None: ...

    with tracer.trace_context(rollout_id="r", attempt_id="a"), pytest.raises(TypeError, match="one"):
        one(1, 2)  # type: ignore[call-arg]  # that is the point
    (span,) = spans_in_log()
    assert span.attributes["agentlightning.operation.input.args.1"] == 2


def test_what_cannot_be() -> None:
    twice: dict[str, Any] = {"agentlightning.operation.name": "b"}
    with pytest.raises(ValueError, match="a function is needed"):
        operation("my.span")  # type: ignore[call-overload]  # what callers without types do
    with pytest.raises(ValueError, match="give one of them"):
        operation(name="a", **twice)
    op = operation(propagate=False)
    assert isinstance(op, OperationContext)
    with pytest.raises(RuntimeError, match="not open"):
        op.set_input(1)
    with pytest.raises(RuntimeError, match="not ended"):
        op.span()
    with op:
        op.set_output(1)
    assert op.span().attributes == {"agentlightning.operation.output": 1}
    assert issubclass(NoActiveTracerError, RuntimeError)


def test_what_a_reward_function_returns_is_emitted(tracer: OtelTracer, spans_in_log: SpansInLog) -> None:
    @reward
    def score(answer: str) -> float | None:
        return None if not answer else float(len(answer))

    @reward
    async def judged() -> float:
        await asyncio.sleep(0)
        return 0.5

    with tracer.trace_context(rollout_id="r", attempt_id="a"):
        assert (score("abc"), score(""), asyncio.run(judged())) == (3.0, None, 0.5)
    values = [span.attributes.get("agentlightning.reward.0.value") for span in spans_in_log()]
    assert [value for value in values if value is not None] == [3.0, 0.5]


@pytest.mark.parametrize("of_coroutine", [False, True])
def test_calls_of_a_judge_are_no_training_data(
    tracer: OtelTracer, spans_in_log: SpansInLog, of_coroutine: bool
) -> None:
    def call(response: str) -> None:
        ids = {"prompt_token_ids": [1, 2], "response_token_ids": [3]}
        with tracer.operation_context("openai.chat.completion", {"gen_ai.response.id": response, **ids}):
            pass

    @reward
    def judged() -> float:
        call("judge")
        return 0.5

    @reward
    async def judged_later() -> float:
        await asyncio.sleep(0)
        call("judge")
        return 0.5

    with tracer.trace_context(rollout_id=ROLLOUT, attempt_id=f"{ROLLOUT}-a1"):
        call("agent")
        if of_coroutine:
            asyncio.run(judged_later())
        else:
            judged()
    trajectory = assemble(*spans_in_log())
    assert [(triplet.response_id, triplet.reward) for triplet in trajectory.triplets] == [("agent", 0.5)]
    (drop,) = trajectory.drops
    assert (drop.response_id, drop.is_llm_call, drop.reason) == ("judge", True, DropReason.INSIDE_REWARD)
    assert trajectory.reward == 0.5
