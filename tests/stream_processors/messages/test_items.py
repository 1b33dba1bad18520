"""Items of messages are recognised by their shape, whatever attribute they are under, and what is lost is named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lightstream.stream_processors.core.messages import read_conversation, text_of

from ..assembly.build import framework_span, proxy_span

ARGUMENTS = '{"city": "Oslo"}'
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": ARGUMENTS}}
ASKED: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Oslo?"},
    {"role": "assistant", "content": "Let me look.", "reasoning_content": "I need a tool.", "tool_calls": [CALL]},
    {"role": "tool", "content": "3 °C", "tool_call_id": "c1"},
]
ANSWER = {"role": "assistant", "content": "3 °C.", "reasoning_content": "It is cold."}

SHAPES: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {
    "parts": (
        [
            {"role": "system", "parts": [{"type": "text", "content": "Be brief."}]},
            {"role": "user", "parts": [{"type": "text", "content": "Oslo?"}]},
            {
                "role": "assistant",
                "parts": [
                    {"type": "reasoning", "content": "I need a tool."},
                    {"type": "text", "content": "Let me look."},
                    {"type": "tool_call", "id": "c1", "name": "weather", "arguments": {"city": "Oslo"}},
                ],
            },
            {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "3 °C"}]},
        ],
        [
            {
                "role": "assistant",
                "parts": [{"type": "reasoning", "content": "It is cold."}, {"type": "text", "content": "3 °C."}],
            }
        ],
    ),
    "chat": (ASKED, [ANSWER]),
    "chat of vLLM": (
        [*ASKED[:2], {**ASKED[2], "reasoning_content": None, "reasoning": "I need a tool."}, ASKED[3]],
        [{"role": "assistant", "content": "3 °C.", "reasoning": "It is cold."}],
    ),
    "Responses": (
        [
            {"role": "system", "content": "Be brief."},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Oslo?"}]},
            {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "I need a tool."}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me look."}]},
            {"type": "function_call", "id": "fc", "call_id": "c1", "name": "weather", "arguments": ARGUMENTS},
            {"type": "function_call_output", "call_id": "c1", "output": "3 °C"},
        ],
        [
            {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "It is cold."}], "summary": []},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "3 °C."}]},
        ],
    ),
    "Anthropic": (
        [
            {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
            {"role": "user", "content": "Oslo?"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "I need a tool.", "signature": "s"},
                    {"type": "text", "text": "Let me look."},
                    {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Oslo"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "3 °C"}]}
                ],
            },
        ],
        [
            {
                "role": "assistant",
                "content": [{"type": "thinking", "thinking": "It is cold."}, {"type": "text", "text": "3 °C."}],
            }
        ],
    ),
    "Bedrock": (
        [
            {"role": "system", "content": [{"text": "Be brief."}]},
            {"role": "user", "content": [{"text": "Oslo?"}]},
            {
                "role": "assistant",
                "content": [
                    {"reasoningContent": {"reasoningText": {"text": "I need a tool."}}},
                    {"text": "Let me look."},
                    {"toolUse": {"toolUseId": "c1", "name": "weather", "input": {"city": "Oslo"}}},
                ],
            },
            {"role": "user", "content": [{"toolResult": {"toolUseId": "c1", "content": [{"text": "3 °C"}]}}]},
        ],
        [
            {
                "role": "assistant",
                "content": [{"reasoningContent": {"reasoningText": {"text": "It is cold."}}}, {"text": "3 °C."}],
            }
        ],
    ),
    "Gemini": (
        [
            {"role": "system", "parts": [{"text": "Be brief."}]},
            {"role": "user", "parts": [{"text": "Oslo?"}]},
            {
                "role": "model",
                "parts": [
                    {"text": "I need a tool.", "thought": True},
                    {"text": "Let me look."},
                    {"functionCall": {"id": "c1", "name": "weather", "args": {"city": "Oslo"}}},
                ],
            },
            {"role": "user", "parts": [{"functionResponse": {"id": "c1", "name": "weather", "response": "3 °C"}}]},
        ],
        [{"role": "model", "parts": [{"text": "It is cold.", "thought": True}, {"text": "3 °C."}]}],
    ),
    "LangChain": (
        [
            {"type": "system", "content": "Be brief."},
            {"lc": 1, "type": "constructor", "id": ["langchain", "HumanMessage"], "kwargs": {"content": "Oslo?"}},
            {
                "type": "ai",
                "content": "Let me look.",
                "tool_calls": [{"name": "weather", "args": {"city": "Oslo"}, "id": "c1", "type": "tool_call"}],
                "additional_kwargs": {"reasoning_content": "I need a tool."},
            },
            {"type": "tool", "content": "3 °C", "tool_call_id": "c1", "name": "weather"},
        ],
        [{"type": "ai", "content": "3 °C.", "additional_kwargs": {"reasoning_content": "It is cold."}}],
    ),
    "Vercel": (
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Oslo?"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "reasoning", "text": "I need a tool."},
                    {"type": "text", "text": "Let me look."},
                    {"type": "tool-call", "toolCallId": "c1", "toolName": "weather", "input": {"city": "Oslo"}},
                ],
            },
            {
                "role": "tool",
                "content": [
                    {"type": "tool-result", "toolCallId": "c1", "output": {"type": "text", "value": "3 °C"}},
                ],
            },
        ],
        [
            {
                "role": "assistant",
                "content": [{"type": "reasoning", "text": "It is cold."}, {"type": "text", "text": "3 °C."}],
            }
        ],
    ),
}


def without_nothing(message: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in message.items() if value is not None}


@pytest.mark.parametrize("structured", [True, False], ids=["structured", "JSON"])
@pytest.mark.parametrize("shape", SHAPES)
def test_any_shape_is_read_under_opentelemetrys_names(shape: str, structured: bool) -> None:
    asked, answered = (part if structured else json.dumps(part) for part in SHAPES[shape])
    found = read_conversation(framework_span(1, {"gen_ai.input.messages": asked, "gen_ai.output.messages": answered}))
    assert found is not None
    assert found.whole(0) == [*ASKED, ANSWER]
    assert (found.left_out, found.incomplete, len(found.answer)) == ([], "", 1)


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "parts"])
def test_any_shape_is_read_of_whole_bodies(shape: str) -> None:
    asked, answered = SHAPES[shape]
    body = {"output": answered} if shape == "Responses" else answered[0]
    attributes = {
        "langfuse.observation.input": json.dumps(asked),
        "langfuse.observation.output": json.dumps(body),
    }
    found = read_conversation(framework_span(1, attributes))
    assert found is not None
    assert [without_nothing(message) for message in found.whole(0)] == [*ASKED, ANSWER]


def test_what_the_proxy_recorded_of_thinking_is_kept() -> None:
    answer = {"role": "assistant", "content": "3 °C.", "reasoning": "It is cold."}
    request = {"messages": ASKED}
    found = read_conversation(proxy_span(1, request_json=json.dumps(request), response_json=json.dumps(answer)))
    assert found is not None
    assert found.whole(0) == [*ASKED, ANSWER]


def test_a_turn_of_items_is_one_message_and_a_cut_thought_is_one_too() -> None:
    items: list[dict[str, Any]] = [
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": ARGUMENTS},
        {"type": "function_call", "call_id": "c2", "name": "weather", "arguments": ARGUMENTS},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "3 °C"}]},
        {"type": "local_shell_call", "call_id": "c3", "action": {"command": ["ls"]}},
        {"type": "local_shell_call_output", "call_id": "c3", "output": "a.txt"},
    ]
    answer = [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "Let me think"}]}]
    found = read_conversation(framework_span(1, {"gen_ai.input.messages": items, "gen_ai.output.messages": answer}))
    assert found is not None
    first, result, shell, listed = found.messages
    assert [call["id"] for call in first["tool_calls"]] == ["c1", "c2"]
    assert result == ASKED[3]
    assert shell["tool_calls"][0]["function"] == {"name": "local_shell", "arguments": '{"command": ["ls"]}'}
    assert listed == {"role": "tool", "content": "a.txt", "tool_call_id": "c3"}
    assert found.answer == [{"role": "assistant", "content": "", "reasoning_content": "Let me think"}]


SEARCH = {"id": "s1", "type": "function", "function": {"name": "web_search", "arguments": '{"query": "Oslo"}'}}
SERVED: dict[str, list[dict[str, Any]]] = {
    "OpenTelemetry": [
        {
            "role": "assistant",
            "parts": [
                {"type": "server_tool_call", "id": "s1", "name": "web_search", "server_tool_call": {"query": "Oslo"}},
                {"type": "server_tool_call_response", "id": "s1", "server_tool_call_response": {"found": 3}},
                {"type": "text", "content": "3 °C."},
            ],
        }
    ],
    "Anthropic": [
        {
            "role": "assistant",
            "content": [
                {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "Oslo"}},
                {"type": "web_search_tool_result", "tool_use_id": "s1", "content": {"found": 3}},
                {"type": "text", "text": "3 °C."},
            ],
        }
    ],
    "Responses": [
        {"type": "web_search_call", "id": "s1", "action": {"query": "Oslo"}, "results": {"found": 3}},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "3 °C."}]},
    ],
}


@pytest.mark.parametrize("shape", SERVED)
def test_tools_that_the_model_server_ran_come_before_the_answer(shape: str) -> None:
    found = read_conversation(framework_span(1, {"gen_ai.output.messages": SERVED[shape]}))
    assert found is not None
    called, result, answer = found.whole(0)
    assert called == {"role": "assistant", "content": None, "tool_calls": [SEARCH]}
    assert result == {"role": "tool", "content": '{"found": 3}', "tool_call_id": "s1"}
    assert answer == {"role": "assistant", "content": "3 °C."}
    assert (found.answer, found.left_out) == ([answer], [])


def test_each_choice_is_an_answer() -> None:
    choices = [{"role": "assistant", "parts": [{"type": "text", "content": text}]} for text in "ab"]
    found = read_conversation(framework_span(1, {"gen_ai.output.messages": choices}))
    assert found is not None
    assert [found.choice(index)["content"] for index in (0, 1)] == ["a", "b"]


def test_what_no_message_can_hold_is_named() -> None:
    messages: list[Any] = [
        {"role": "user", "parts": [{"type": "text", "content": "?"}, {"type": "blob", "modality": "audio"}, 7]},
        {"no": "role"},
        {"type": "mcp_approval_request", "id": "x"},
        {"type": "reasoning", "encrypted_content": "…", "summary": []},
        5,
    ]
    found = read_conversation(framework_span(1, {"gen_ai.input.messages": messages}))
    assert found is not None
    assert found.messages == [{"role": "user", "content": "?"}]
    assert found.left_out == [
        "part of type blob",
        "part of type int",
        "item without a role",
        "item of type mcp_approval_request",
        "encrypted reasoning",
        "int",
    ]


THOUGHT = {"role": "assistant", "content": "3 °C.", "reasoning_content": "It is cold."}
KEPT_APART: dict[str, dict[str, Any]] = {
    "flat attributes": {
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": "3 °C.",
        "gen_ai.completion.0.reasoning": "It is cold.",
    },
    "OpenInference": {
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.contents.0.message_content.type": "reasoning",
        "llm.output_messages.0.message.contents.0.message_content.text": "It is cold.",
        "llm.output_messages.0.message.contents.1.message_content.type": "text",
        "llm.output_messages.0.message.contents.1.message_content.text": "3 °C.",
    },
    "Vercel": {"ai.response.text": "3 °C.", "ai.response.reasoning": "It is cold."},
    "events": {
        "events": [{"event.name": "gen_ai.choice", "message": {"content": "3 °C.", "reasoning_content": "It is cold."}}]
    },
}


@pytest.mark.parametrize("convention", KEPT_APART)
def test_what_a_model_thought_is_kept_of_every_convention(convention: str) -> None:
    found = read_conversation(framework_span(1, KEPT_APART[convention]))
    assert found is not None
    (answer,) = found.answer
    assert answer["reasoning_content"] == THOUGHT["reasoning_content"]
    assert text_of(answer["content"]) == THOUGHT["content"]


def test_calls_of_the_first_interface_and_sounds() -> None:
    messages = [
        {"role": "user", "content": "Oslo?"},
        {"role": "assistant", "content": None, "function_call": {"name": "weather", "arguments": ARGUMENTS}},
    ]
    answer = [{"role": "assistant", "content": None, "audio": {"id": "a", "data": "AA"}}]
    found = read_conversation(framework_span(1, {"gen_ai.input.messages": messages, "gen_ai.output.messages": answer}))
    assert found is not None
    assert found.messages[1]["tool_calls"] == [{**CALL, "id": ""}]
    assert found.left_out == ["audio of a message"]
