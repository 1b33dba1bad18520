"""Rewards and annotations, by Agent Lightning's names."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from lightstream.producers import (
    OtelTracer,
    emit_annotation,
    emit_exception,
    emit_message,
    emit_object,
    emit_reward,
    make_link_attributes,
    make_tag_attributes,
)
from lightstream.runtime.clock import NANOS_PER_SECOND
from lightstream.schemas.records import SpanRecord

SpansInLog = Callable[[], list[SpanRecord]]


def fields(reward: Any, **options: Any) -> dict[str, Any]:
    emitted = emit_reward(reward, propagate=False, **options)
    assert emitted.name == "agentlightning.annotation"
    return emitted.attributes


def test_scalar_reward() -> None:
    assert fields(1) == {"agentlightning.reward.0.name": "primary", "agentlightning.reward.0.value": 1.0}


def test_primary_dimension_comes_first() -> None:
    assert fields({"speed": 0.5, "task": True}, primary_key="task") == {
        "agentlightning.reward.0.name": "task",
        "agentlightning.reward.0.value": 1.0,
        "agentlightning.reward.1.name": "speed",
        "agentlightning.reward.1.value": 0.5,
    }
    assert fields({"only": 2})["agentlightning.reward.0.name"] == "only"


def test_reward_of_one_call() -> None:
    linked = {"agentlightning.link.0.key_match": "gen_ai.response.id", "agentlightning.link.0.value_match": "c-1"}
    assert fields(1.0, link={"gen_ai.response.id": "c-1"}).items() >= linked.items()
    assert fields(1.0, attributes=make_link_attributes({"gen_ai.response.id": "c-1"})).items() >= linked.items()
    assert fields(1.0, attributes=make_tag_attributes(["fast"]))["agentlightning.tag.0"] == "fast"


@pytest.mark.parametrize("reward", [True, np.bool_(True), np.float32(1), np.int64(1), np.array(1.0), Decimal(1)])
def test_numbers_of_all_kinds_are_rewards(reward: Any) -> None:
    assert fields(reward)["agentlightning.reward.0.value"] == 1.0


@pytest.mark.parametrize("reward", ["1.0", None, [1.0], object(), np.array([1.0]), np.array([1, 2]), 10**400])
def test_what_is_no_number_is_refused(reward: Any) -> None:
    with pytest.raises(TypeError, match="must be a number"):
        emit_reward(reward, propagate=False)
    with pytest.raises(ValueError, match="must be a number"):
        emit_reward({"task": reward}, primary_key="task", propagate=False)


@pytest.mark.parametrize(("reward", "key"), [({"a": 1, "b": 2}, None), ({"a": 1}, "b"), ({}, None)])
def test_primary_key_must_be_one_of_the_dimensions(reward: dict[str, float], key: str | None) -> None:
    with pytest.raises(ValueError, match="primary_key"):
        emit_reward(reward, primary_key=key, propagate=False)


def test_annotations_are_flattened() -> None:
    emitted = emit_annotation({"a": {"b": [1, 2], "c": [{"d": "x"}, 1]}, "t": ("x", "y")}, propagate=False)
    assert emitted.attributes == {"a.b": [1, 2], "a.c.0.d": "x", "a.c.1": 1, "t": ["x", "y"]}
    assert (emitted.name, emitted.status.status_code) == ("agentlightning.annotation", "OK")
    with pytest.raises(ValueError, match=r"'a\.b'.*object"):
        emit_annotation({"a": {"b": object()}}, propagate=False)
    with pytest.raises(ValueError, match=r"'a'.*NoneType"):
        emit_annotation({"a": None}, propagate=False)
    cycle: dict[str, Any] = {}
    cycle["again"] = cycle
    with pytest.raises(ValueError, match="nested deeper"):
        emit_annotation(cycle, propagate=False)


def test_everything_emitted_reaches_the_log(tracer: OtelTracer, spans_in_log: SpansInLog) -> None:
    with tracer.trace_context(rollout_id="r", attempt_id="a"):
        emitted = emit_reward(0.5)
        emit_message("hello", {"step": 1, "far": {"off": None}})
        emit_object({"k": [1, None]})
        emit_object(3)
        try:
            raise KeyError("gone")
        except KeyError as error:
            emit_exception(error)
    spans = spans_in_log()
    assert (spans[0].span_id, spans[0].trace_id) == (emitted.span_id, emitted.trace_id)
    assert emitted.start_time == spans[0].start_unix_nano / NANOS_PER_SECOND
    assert [(span.name, span.rollout_id) for span in spans] == [
        ("agentlightning.annotation", "r"),
        ("agentlightning.message", "r"),
        ("agentlightning.object", "r"),
        ("agentlightning.object", "r"),
        ("agentlightning.exception", "r"),
    ]
    assert spans[1].attributes == {"step": 1, "far.off": "null", "agentlightning.message.body": "hello"}
    assert spans[2].attributes == {
        "agentlightning.object.type": "dict",
        "agentlightning.object.json": '{"k": [1, null]}',
    }
    assert spans[3].attributes == {"agentlightning.object.type": "int", "agentlightning.object.literal": "3"}
    assert spans[4].attributes["exception.type"] == "KeyError"
    assert "KeyError: 'gone'" in str(spans[4].attributes["exception.stacktrace"])
    assert [span.status for span in spans] == ["ok", "unset", "ok", "ok", "ok"]


@pytest.mark.parametrize("call", [lambda: emit_message(1), lambda: emit_object(object()), lambda: emit_exception("x")])  # type: ignore[arg-type]  # what callers without types do
def test_what_cannot_be_emitted_is_refused(tracer: OtelTracer, call: Callable[[], Any]) -> None:
    with pytest.raises((TypeError, RuntimeError), match=r"must be text|written as JSON|an exception is needed"):
        call()


def test_emitting_without_a_tracer_is_an_error() -> None:
    program = "from lightstream.producers import emit_reward; emit_reward(1.0)"
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ, stderr=subprocess.PIPE, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert (
        "NoActiveTracerError: no tracer is active, so the emitted span would be lost. Run the agent with a Runner"
        in done.stderr
    )
