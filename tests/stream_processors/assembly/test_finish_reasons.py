"""Why an answer ended is read wherever a tracer says it, by the choice it is told of."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lightstream.schemas.records import SpanEventRecord
from lightstream.stream_processors.core.dialects import read_calls

from .build import framework_span, proxy_span

CHAT = {"gen_ai.operation.name": "chat"}
LISTED = "gen_ai.response.finish_reasons"
OUTPUT = "gen_ai.output.messages"


@pytest.mark.parametrize(
    ("attributes", "place"),
    [
        ({LISTED: ["stop", "length"]}, LISTED),
        ({LISTED: '["stop"]'}, LISTED),
        ({LISTED: "stop"}, LISTED),
        ({"gen_ai.completion.0.finish_reason": "stop"}, "gen_ai.completion.0.finish_reason"),
        ({OUTPUT: json.dumps([{"role": "assistant", "parts": [], "finish_reason": "stop"}])}, f"{OUTPUT}[0]"),
        ({OUTPUT: [{"role": "assistant", "parts": [], "finish_reason": "stop"}]}, f"{OUTPUT}[0]"),
        ({"ai.response.finishReason": "stop"}, "ai.response.finishReason"),
        ({"llm.finish_reason": "stop"}, "llm.finish_reason"),
    ],
)
def test_it_is_read_under_each_of_its_names(attributes: dict[str, Any], place: str) -> None:
    (call,) = read_calls(framework_span(1, CHAT | attributes))
    assert call.finish_reason == "stop"
    assert call.source_of("finish_reason") == place


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("gen_ai.choice", {"index": 0, "finish_reason": "stop"}),
        ("gen_ai.client.inference.operation.details", {OUTPUT: '[{"parts": [], "finish_reason": "stop"}]'}),
    ],
)
def test_it_is_read_of_an_event(name: str, attributes: dict[str, Any]) -> None:
    events = [SpanEventRecord(name="gen_ai.choice", attributes={"index": 1, "finish_reason": "length"})]
    events.append(SpanEventRecord(name=name, attributes=attributes))
    (call,) = read_calls(framework_span(1, CHAT, events=events))
    assert (call.finish_reason, call.source_of("finish_reason")) == ("stop", name)


@pytest.mark.parametrize(
    "attributes",
    [
        {LISTED: ["stop", "length"]},
        {LISTED: '["stop", "length"]'},
        {f"gen_ai.completion.{index}.finish_reason": reason for index, reason in enumerate(["stop", "length"])},
        {OUTPUT: [{"finish_reason": "stop"}, {"finish_reason": "length"}]},
    ],
)
def test_each_choice_has_its_own(attributes: dict[str, Any]) -> None:
    answer = {"prompt_token_ids": [1], "choices": [{"index": 1, "token_ids": [3]}, {"index": 0, "token_ids": [2]}]}
    calls = read_calls(framework_span(1, attributes | {"openinference.span.kind": "LLM", "output.value": answer}))
    assert {call.choice_index: call.finish_reason for call in calls} == {0: "stop", 1: "length"}


@pytest.mark.parametrize(
    "attributes",
    [
        {LISTED: []},
        {LISTED: "['stop']"},
        {LISTED: [7]},
        {LISTED: "{}"},
        {OUTPUT: '"finish_reason"'},
        {OUTPUT: "[7]"},
        {"ai.response.finishReason": ""},
    ],
)
def test_what_is_none_stays_missing(attributes: dict[str, Any]) -> None:
    (call,) = read_calls(framework_span(1, CHAT | attributes))
    assert call.finish_reason is None


def test_the_first_event_that_tells_of_a_choice_counts() -> None:
    told = [
        {"index": [], "finish_reason": "no"},
        {"index": 1, "finish_reason": "a"},
        {"index": 1.0, "finish_reason": "b"},
    ]
    events = [SpanEventRecord(name="gen_ai.choice", attributes=each) for each in told]
    whole = [{"finish_reason": reason} for reason in ("c", "d", "", "e")]
    events.append(SpanEventRecord(name="whole", attributes={OUTPUT: json.dumps(whole)}))
    events.append(SpanEventRecord(name="gen_ai.choice", attributes={"index": 2, "finish_reason": "f"}))
    answer = {"prompt_token_ids": [1], "choices": [{"index": i, "token_ids": [i]} for i in (4, 2, 0, 1)]}
    attributes = {"openinference.span.kind": "LLM", "output.value": answer}
    calls = read_calls(framework_span(1, attributes, events=events))
    assert [(call.finish_reason, call.source_of("finish_reason")) for call in calls] == [
        (None, "openinference"),
        ("f", "gen_ai.choice"),
        ("c", "whole"),
        ("a", "gen_ai.choice"),
    ]


def test_the_record_says_it_itself() -> None:
    (call,) = read_calls(proxy_span(1, attributes={LISTED: ["length"]}))
    assert call.finish_reason == "stop"
