"""Messages that Vercel, LiteLLM and completions' servers keep in ways of their own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lightstream.stream_processors.core.messages import read_conversation, text_of

from ..assembly.build import framework_span, proxy_span

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
TOOL = {"type": "function", "function": {"name": "add", "description": "", "parameters": {"type": "object"}}}
ASKED: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "1 + 1?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": '{"sum": 2}', "tool_call_id": "c1"},
]


@pytest.mark.parametrize(
    ("arguments", "result", "schema"),
    [
        ("args", {"result": {"sum": 2}}, "parameters"),
        ("input", {"output": {"type": "json", "value": {"sum": 2}}}, "inputSchema"),
    ],
    ids=["version 4", "version 5"],
)
def test_vercels_messages_are_read_with_tools(arguments: str, result: dict[str, Any], schema: str) -> None:
    called = {"toolCallId": "c1", "toolName": "add"}
    prompt = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "1 + 1?"}]},
        {"role": "assistant", "content": [{"type": "tool-call", **called, arguments: {"a": 1}}]},
        {"role": "tool", "content": [{"type": "tool-result", **called, **result}]},
    ]
    attributes = {
        "ai.prompt.messages": json.dumps(prompt),
        "ai.prompt.tools": [json.dumps({"type": "function", "name": "add", schema: {"type": "object"}})],
        "ai.response.toolCalls": json.dumps([called | {arguments: '{"a": 1}'}]),
    }
    found = read_conversation(framework_span(1, attributes))
    assert found is not None
    assert found.messages == ASKED
    assert found.answer == [ASKED[2]]
    assert found.tools == [TOOL]
    found = read_conversation(framework_span(1, attributes | {"ai.response.text": "Wait."}))
    assert found is not None
    assert found.answer == [ASKED[2] | {"content": "Wait."}]


def test_vercels_images_and_structured_answers() -> None:
    image = {"type": "file", "mediaType": "image/png", "data": "AAAA"}
    attributes = {
        "ai.prompt.messages": json.dumps([{"role": "user", "content": [image, {"type": "file", "data": "A"}]}]),
        "ai.response.object": '{"sum": 2}',
    }
    found = read_conversation(framework_span(1, attributes))
    assert found is not None
    url = {"url": "data:image/png;base64,AAAA"}
    assert found.messages == [{"role": "user", "content": [{"type": "image_url", "image_url": url}]}]
    assert found.answer == [{"role": "assistant", "content": '{"sum": 2}'}]


def test_litellms_raw_requests_hold_both_sides() -> None:
    choices = [{"index": 0, "message": {"role": "assistant", "content": "2.", "tool_calls": None}}]
    attributes = {"messages": str(ASKED), "tools": json.dumps([TOOL]), "choices": str(choices), "model": "m"}
    raw = {f"llm.hosted_vllm.{name}": value for name, value in attributes.items()}
    found = read_conversation(framework_span(1, raw, name="raw_gen_ai_request"))
    assert found is not None
    assert found.messages == ASKED
    assert found.answer == [{"role": "assistant", "content": "2."}]
    assert found.tools == [TOOL]
    assert read_conversation(framework_span(1, raw, name="other")) is None
    unreadable = {"llm.openai.messages": "[Message()]", "llm.openai.choices": "[Choices()]"}
    assert read_conversation(framework_span(1, unreadable, name="raw_gen_ai_request")) is None


@pytest.mark.parametrize(
    ("request_body", "choice_index", "prompt"),
    [
        ({"prompt": "2 + 2 ="}, 0, "2 + 2 ="),
        ({"prompt": "2 + 2 =", "n": 3}, 2, "2 + 2 ="),
        ({"prompt": ["a", "b"]}, 1, "b"),
        ({"prompt": ["a", "b"], "n": 2}, 1, "a"),
        ({"prompt": ["a", "b"], "n": 2}, 2, "b"),
        ({"prompt": ["a"]}, 3, None),
        ({"prompt": [1, 2, 3]}, 0, None),
        ({"prompt": [[1, 2], [3]]}, 1, None),
        ({"prompt": {"a": 1}}, 0, None),
    ],
)
def test_a_completions_prompt_is_the_users_message(
    request_body: dict[str, Any], choice_index: int, prompt: str | None
) -> None:
    answer = json.dumps({"role": "assistant", "content": "4"})
    span = proxy_span(1, request_json=json.dumps(request_body), response_json=answer, choice_index=choice_index)
    found = read_conversation(span)
    assert found is not None
    assert found.messages == ([] if prompt is None else [{"role": "user", "content": prompt}])


def test_completions_are_read_of_whole_bodies_too() -> None:
    attributes = {
        "mlflow.spanInputs": json.dumps({"prompt": "2 + 2 ="}),
        "mlflow.spanOutputs": json.dumps({"choices": [{"text": "4"}, {"text": "5"}]}),
    }
    found = read_conversation(framework_span(1, attributes))
    assert found is not None
    assert found.messages == [{"role": "user", "content": "2 + 2 ="}]
    assert found.answer == [{"role": "assistant", "content": text} for text in "45"]


def test_text_is_text_or_the_texts_of_parts() -> None:
    assert text_of("4") == "4"
    assert text_of([{"type": "text", "text": "4"}, {"type": "image_url", "image_url": {}}, "x"]) == "4"
    assert text_of(None) == ""
