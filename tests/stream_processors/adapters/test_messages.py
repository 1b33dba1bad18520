"""Chat messages from spans."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lightstream.schemas.records import LlmCall
from lightstream.schemas.types import Span
from lightstream.stream_processors.adapters import TraceToMessages
from lightstream.stream_processors.core.messages import Conversation, grouped, read_conversation, unflattened

from ..assembly.build import framework_span, proxy_span
from .build import span


def flat(prefix: str, value: Any) -> dict[str, Any]:
    """Attributes as tracers spell them out."""
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = [(str(index), item) for index, item in enumerate(value)]  # type: ignore[assignment]  # pairs either way
    else:
        return {prefix: value}
    return {name: inner for key, item in items for name, inner in flat(f"{prefix}.{key}", item).items()}


def agentops(span_id: str, prompt: list[Any], completion: list[Any], *, at: int = 0, **request: Any) -> Span:
    attributes = flat("gen_ai.prompt", prompt) | flat("gen_ai.completion", completion) | flat("gen_ai.request", request)
    return span(span_id, at=at, name="openai.chat.completion", attributes=attributes | {"gen_ai.response.id": span_id})


USER = {"role": "user", "content": "Weather in Paris?"}


def test_a_conversation_with_a_tool() -> None:
    function = {"name": "weather", "description": "Looks it up.", "parameters": '{"type": "object"}'}
    asked = agentops("x", [USER], [{"role": "assistant", "content": None}], functions=[function])
    tool = {"name": "weather", "parameters": '{"city": "Paris"}', "call": {"id": "c1", "type": "function"}}
    used = span("t", "x", name="tool", at=1, attributes=flat("tool", tool))
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
    repeated = {"tool_calls": [{"id": "c1", "name": "weather", "arguments": '{"city": "Paris"}'}]}
    told = agentops(
        "y",
        [USER, repeated, {"tool_call_id": "c1", "content": "sunny"}, {"content": "nobody said this"}],
        [{"role": "assistant", "content": "Sunny."}],
        at=2,
    )
    first, second = TraceToMessages()([asked, used, told])
    assert first == {
        "messages": [USER, {"role": "assistant", "content": None, "tool_calls": [call]}],
        "tools": [
            {
                "type": "function",
                "function": {"name": "weather", "description": "Looks it up.", "parameters": {"type": "object"}},
            }
        ],
    }
    assert second["messages"] == [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "sunny", "tool_call_id": "c1"},
        {"role": "assistant", "content": "Sunny."},
    ]
    assert second["tools"] is None
    assert list(TraceToMessages().get_tool_calls(asked, [asked, used, told])) == [tool]


def test_spans_of_one_call_make_one_conversation_and_other_spans_none() -> None:
    parts = [{"role": "user", "parts": [{"type": "text", "content": "Weather in Paris?"}]}]
    around = {"gen_ai.input.messages": json.dumps(parts), "gen_ai.output.messages": "[]"}
    spans = [
        span("agent", at=0, name="invoke_agent", attributes=around | {"gen_ai.operation.name": "invoke_agent"}),
        agentops("x", [USER], [{"role": "assistant", "content": "Sunny."}], at=1),
        span("sdk", "x", at=2, name="chat", attributes=around | {"gen_ai.operation.name": "chat"}),
        span("nothing", at=3),
    ]
    (found,) = TraceToMessages().adapt(spans)
    assert found["messages"] == [USER, {"role": "assistant", "content": "Sunny."}]


TOOL_CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
TOOL = {"type": "function", "function": {"name": "add", "description": "", "parameters": {"type": "object"}}}
EXPECTED: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "1 + 1?"},
    {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]},
    {"role": "tool", "content": "2", "tool_call_id": "c1"},
]
ANSWER = {"role": "assistant", "content": "2."}
PARTS = [
    {"role": "user", "parts": [{"type": "text", "content": "1 + 1?"}]},
    {"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "add", "arguments": {"a": 1}}]},
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "2"}]},
]
OPENINFERENCE = [
    {"message": {"role": "system", "content": "Be brief."}},
    {"message": {"role": "user", "content": "1 + 1?"}},
    {
        "message": {
            "role": "assistant",
            "tool_calls": [{"tool_call": {"id": "c1", "function": {"name": "add", "arguments": '{"a": 1}'}}}],
        }
    },
    {"message": {"role": "tool", "content": "2", "tool_call_id": "c1"}},
]


@pytest.mark.parametrize(
    "attributes",
    [
        {
            "gen_ai.system_instructions": json.dumps([{"type": "text", "content": "Be brief."}]),
            "gen_ai.input.messages": PARTS,
            "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "2."}]}]),
            "gen_ai.tool.definitions": json.dumps([TOOL]),
        },
        flat("llm.input_messages", OPENINFERENCE)
        | flat("llm.output_messages", [{"message": {"role": "assistant", "content": "2."}}])
        | flat("llm.tools", [{"tool": {"json_schema": json.dumps(TOOL)}}]),
        {
            "langfuse.observation.input": json.dumps({"messages": EXPECTED, "tools": [TOOL]}),
            "langfuse.observation.output": json.dumps(ANSWER),
        },
        flat("agentlightning.operation.output.choices", [{"message": ANSWER}])
        | {"agentlightning.operation.input.messages": json.dumps(EXPECTED)}
        | {"agentlightning.operation.input.tools": json.dumps([TOOL])},
    ],
    ids=["parts", "openinference", "langfuse", "weave"],
)
def test_every_dialect_says_the_same(attributes: dict[str, Any]) -> None:
    found = read_conversation(framework_span(1, attributes))
    assert found is not None
    assert found.messages == EXPECTED
    assert found.answer == [ANSWER]
    assert found.whole(0)[-1] == ANSWER
    assert found.tools == [TOOL]


def test_the_proxys_record_is_the_request_as_sent() -> None:
    request, answer = {"messages": EXPECTED, "tools": [TOOL]}, ANSWER
    record = proxy_span(1, request_json=json.dumps(request), response_json=json.dumps(answer))
    assert isinstance(record.llm_call, LlmCall)
    assert read_conversation(record) == Conversation("recorded", EXPECTED, [ANSWER], [TOOL])
    assert read_conversation(proxy_span(2, request_json="[", response_json=None)) is None


def test_flat_names_become_structure() -> None:
    values = {"p.0.a": 1, "p.1.a.b": 2, "p.1.a": 3, "p.x": 4, "q": 5, "pp.0": 6}
    assert grouped(values, "p") == [{"a": 1}, {"a": {"b": 2}}]
    assert unflattened(values, "p") == {"0": {"a": 1}, "1": {"a": {"b": 2}}, "x": 4}
    assert unflattened({"p.1": "b", "p.0": "a"}, "p") == ["a", "b"]
    assert unflattened(values, "none") is None
    assert grouped(values, "none") == {}
    assert unflattened({"p." + "0." * 5000 + "x": 1}, "p") is not None
