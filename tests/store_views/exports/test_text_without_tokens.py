"""Text of agents without recorded token ids: rewards, choices, thoughts, and conversations that are not whole."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from lightstream.schemas.records import SpanEventRecord, Trajectory
from lightstream.store_views.exports import chat_lines, conversations_of, to_atif
from lightstream.store_views.imports import ImportedTrace
from lightstream.store_views.imports.atif import atif_trace
from lightstream.stream_processors.core.messages import read_conversation
from tests.store_views.log_file import LogFile
from tests.stream_processors.assembly.build import closed, framework_span, opened

from .test_exports import asks


def said(role: str, *parts: dict[str, Any]) -> str:
    return json.dumps([{"role": role, "parts": list(parts)}])


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "content": content}


def call(number: int, attributes: dict[str, Any] | None = None, *, score: float | None = None) -> Any:
    """A chat as OpenTelemetry's conventions have it, with an evaluation on its span."""
    at = {
        "gen_ai.operation.name": "chat",
        "gen_ai.response.model": "m@1",
        "gen_ai.response.id": f"resp-{number}",
        "gen_ai.input.messages": said("user", text(f"q{number}")),
        "gen_ai.output.messages": said("assistant", {"type": "reasoning", "content": "hm"}, text(f"a{number}")),
    }
    scored = {"gen_ai.evaluation.name": "right", "gen_ai.evaluation.score.value": score}
    events = [] if score is None else [SpanEventRecord(name="gen_ai.evaluation.result", attributes=scored)]
    return framework_span(number, at | (attributes or {}), name="chat", events=events)


def written(log: LogFile, *spans: Any) -> Trajectory:
    (trajectory,) = log.write_and_assemble(opened(), *spans, closed())
    return trajectory


def test_the_reward_of_a_call_chooses_it_and_the_last_is_the_trajectorys(log: LogFile) -> None:
    trajectory = written(log, call(1, score=1.0), call(2, score=0.25), call(3))
    assert trajectory.reward == 0.25
    lines = list(chat_lines(asks(log), [trajectory], level="call"))
    assert [(line["call_index"], line["reward"]) for line in lines] == [(0, 1.0), (1, 0.25), (2, 0.25)]
    (line,) = chat_lines(asks(log), [trajectory], level="call", reward_min=1.0)
    assert [message["content"] for message in line["messages"]] == ["q1", "a1"]
    (last,) = chat_lines(asks(log), [trajectory], reward_min=0.2)
    assert last["call_index"] == 2


@pytest.mark.parametrize("level", ["call", "segment"])
def test_every_choice_of_a_call_is_a_line(log: LogFile, level: Any) -> None:
    answers = [json.loads(said("assistant", text(content)))[0] for content in ("first", "second")]
    trajectory = written(log, call(1, {"gen_ai.output.messages": json.dumps(answers)}))
    lines = chat_lines(asks(log), [trajectory], level=level)
    assert [line["messages"][-1]["content"] for line in lines] == ["first", "second"]
    (_, step) = to_atif(trajectory, conversations_of(asks(log), trajectory))["steps"]
    assert step["message"] == "first"
    assert [other["content"] for other in step["extra"]["lightstream"]["choices"]] == ["second"]


def test_atif_has_calls_without_token_ids_there_and_back(log: LogFile) -> None:
    trajectory = written(log, call(1, score=1.0), call(2))
    document = to_atif(trajectory, conversations_of(asks(log), trajectory))
    steps = [(step["source"], step["message"], step.get("reasoning_content")) for step in document["steps"]]
    assert steps == [("user", "q1", None), ("agent", "a1", "hm"), ("user", "q2", None), ("agent", "a2", "hm")]
    assert document["agent"]["model_name"] == "m@1"
    assert document["steps"][1]["extra"]["lightstream"]["rewards"] == [{"name": "right", "value": 1.0}]
    assert "metrics" not in document["steps"][1]
    back: ImportedTrace = atif_trace(document)
    told = [read_conversation(_record(span)) for span in back.spans if span.name == "chat"]
    assert [found.answer[0]["reasoning_content"] for found in told if found is not None] == ["hm", "hm"]


def _record(span: Any) -> Any:
    return framework_span(1, span.attributes)


def test_a_tool_of_the_model_server_is_a_step_with_its_result(log: LogFile) -> None:
    answer = said(
        "assistant",
        {"type": "server_tool_call", "id": "s1", "name": "search", "server_tool_call": {"query": "x"}},
        {"type": "server_tool_call_response", "id": "s1", "server_tool_call_response": "found"},
        text("a"),
    )
    trajectory = written(log, call(1, {"gen_ai.output.messages": answer}))
    (line,) = chat_lines(asks(log), [trajectory])
    assert [message["role"] for message in line["messages"]] == ["user", "assistant", "tool", "assistant"]
    (_, step) = to_atif(trajectory, conversations_of(asks(log), trajectory))["steps"]
    assert step["tool_calls"] == [{"tool_call_id": "s1", "function_name": "search", "arguments": {"query": "x"}}]
    assert step["observation"]["results"] == [{"source_call_id": "s1", "content": "found"}]
    assert step["message"] == "a"


def test_a_conversation_that_is_not_whole_is_left_out_and_counted(log: LogFile) -> None:
    cut = call(1, {"gen_ai.input.messages": said("user", text("q" * 99))[:40]})
    lost = call(2).model_copy(update={"dropped_attributes_count": 7})
    everything = call(3, {"gen_ai.input.messages": '[{"role', "gen_ai.output.messages": '[{"role'})
    trajectory = written(log, cut, lost, everything, call(4))
    counts: Counter[str] = Counter()
    (line,) = chat_lines(asks(log), [trajectory], level="call", left_out=counts)
    assert line["messages"][0]["content"] == "q4"
    assert counts == {
        "a conversation: gen_ai.input.messages is cut: it begins as JSON, and does not end so": 2,
        "a conversation: the tracer left out 7 attributes of the span": 1,
    }
    steps = to_atif(trajectory, conversations_of(asks(log), trajectory))["steps"]
    assert [step["message"] for step in steps if step["source"] == "agent"] == ["", "", "", "a4"]
    assert steps[1]["extra"]["lightstream"]["incomplete"] == "the tracer left out 7 attributes of the span"
    assert [step["message"] for step in steps if step["source"] == "user"] == ["q4"]


def test_what_no_message_holds_is_counted(log: LogFile) -> None:
    trajectory = written(log, call(1, {"gen_ai.input.messages": said("user", text("q"), {"type": "blob"})}))
    counts: Counter[str] = Counter()
    assert len(list(chat_lines(asks(log), [trajectory], left_out=counts))) == 1
    assert counts == {"part of type blob, of a conversation": 1}
