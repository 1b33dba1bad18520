"""Whatever a span says of its messages, reading them never raises and changes nothing."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from lightstream.schemas.records import LlmCall, SpanEventRecord
from lightstream.stream_processors.core.messages import read_conversation
from tests.support.examples import examples

from ..assembly.build import framework_span

KEYS = [
    "role",
    "content",
    "parts",
    "type",
    "text",
    "tool_calls",
    "function",
    "name",
    "id",
    "message",
    "prompt",
    "index",
    "messages",
    "choices",
    "n",
    "image_url",
    "uri",
    "modality",
    "mime_type",
    "toolCallId",
    "output",
    "event.name",
]
WORDS = ["user", "assistant", "tool", "text", "blob", "image_url", "tool_call_response", "tool-result", "gen_ai.choice"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2) | st.sampled_from(WORDS) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=8,
)
ATTRIBUTES = [
    "gen_ai.prompt.0.content",
    "gen_ai.prompt",
    "gen_ai.completion",
    "gen_ai.completion.0.tool_calls",
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.system_instructions",
    "gen_ai.tool.definitions",
    "gen_ai.event.content",
    "llm.input_messages.0.message",
    "llm.tools.0.tool",
    "llm.openai.messages",
    "llm.openai.choices",
    "agentlightning.operation.input.messages",
    "agentlightning.operation.output.choices",
    "mlflow.spanInputs",
    "mlflow.spanOutputs",
    "ai.prompt.messages",
    "ai.prompt.tools",
    "ai.response.text",
    "ai.response.toolCalls",
    "pydantic_ai.all_messages",
    "events",
    "content",
    "message",
    "tool_calls",
    "index",
]
EVENTS = [
    "gen_ai.user.message",
    "gen_ai.tool.message",
    "gen_ai.choice",
    "gen_ai.content.prompt",
    "gen_ai.content.completion",
    "gen_ai.client.inference.operation.details",
    "exception",
]
SAID = st.dictionaries(st.sampled_from(ATTRIBUTES), VALUES | VALUES.map(json.dumps), max_size=4)


@settings(deadline=None, max_examples=examples(400))
@given(
    SAID, st.lists(st.tuples(st.sampled_from(EVENTS), SAID), max_size=3), st.sampled_from(["x", "raw_gen_ai_request"])
)
def test_no_attribute_and_no_event_breaks_it(
    attributes: dict[str, Any], told: list[tuple[str, dict[str, Any]]], name: str
) -> None:
    events = [SpanEventRecord(name=event, attributes=said) for event, said in told]
    span = framework_span(1, attributes, events=events, name=name)
    before = span.model_copy(deep=True)
    found = read_conversation(span)
    assert span == before
    if found is not None:
        assert all(isinstance(message["role"], str) for message in found.whole(1))
        json.dumps(found.whole(1))


@given(VALUES, VALUES, st.integers(0, 3))
def test_no_request_and_no_answer_breaks_it(asked: Any, answered: Any, choice_index: int) -> None:
    call = LlmCall(request_json=json.dumps(asked), response_json=json.dumps(answered), choice_index=choice_index)
    read_conversation(framework_span(1).model_copy(update={"llm_call": call}))


def test_parts_of_odd_kinds_say_nothing() -> None:
    kinds: list[Any] = [[], {}, 7, None, "image_url", "blob"]
    parts = [{"type": kind, "text": "x", "image_url": 1} for kind in kinds]
    found = read_conversation(framework_span(1, {"gen_ai.input.messages": [{"role": "user", "parts": parts}]}))
    assert found is not None
    json.dumps(found.messages)
