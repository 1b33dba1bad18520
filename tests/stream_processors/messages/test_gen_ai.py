"""GenAI's conventions, in each form that they have had: events, messages of parts, and who follows them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lightstream.schemas.records import SpanEventRecord, SpanRecord
from lightstream.stream_processors.core.messages import read_conversation

from ..assembly.build import framework_span

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
ASKED: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "1 + 1?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": "2", "tool_call_id": "c1"},
]
ANSWERS = [{"role": "assistant", "content": "2."}, {"role": "assistant", "content": None, "tool_calls": [CALL]}]
BODIES: list[tuple[str, dict[str, Any]]] = [
    ("gen_ai.choice", {"index": 1, "message": {"role": "assistant", "tool_calls": [CALL]}, "finish_reason": "stop"}),
    ("gen_ai.system.message", {"content": "Be brief."}),
    ("gen_ai.user.message", {"content": "1 + 1?"}),
    ("gen_ai.assistant.message", {"tool_calls": [CALL]}),
    ("gen_ai.tool.message", {"content": "2", "id": "c1"}),
    ("gen_ai.choice", {"index": 0, "message": {"content": "2."}}),
]
IMAGES = [
    {"type": "image_url", "image_url": {"url": "https://images.test/1.png"}},
    {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,AAAA"}},
]


def event(name: str, **attributes: Any) -> SpanEventRecord:
    return SpanEventRecord(name=name, attributes=attributes)


def as_json(body: dict[str, Any]) -> dict[str, Any]:
    """Attributes, where what is structured is JSON."""
    return {name: json.dumps(value) if isinstance(value, list | dict) else value for name, value in body.items()}


@pytest.mark.parametrize(
    "span",
    [
        framework_span(1, events=[SpanEventRecord(name=name, attributes=body) for name, body in BODIES]),
        framework_span(1, events=[SpanEventRecord(name=name, attributes=as_json(body)) for name, body in BODIES]),
        framework_span(1, events=[event(name, **{"gen_ai.event.content": json.dumps(body)}) for name, body in BODIES]),
        framework_span(1, {"events": json.dumps([{"event.name": name, **body} for name, body in BODIES])}),
        framework_span(1, {"all_messages_events": [{"event.name": name, **body} for name, body in BODIES]}),
    ],
    ids=["events", "events of JSON", "Azure", "Pydantic AI", "Pydantic AI's run"],
)
def test_each_event_is_a_message(span: SpanRecord) -> None:
    found = read_conversation(span)
    assert found is not None
    assert found.messages == ASKED
    assert found.answer == ANSWERS


def test_content_alone_is_the_answer_strands_parts_among_them() -> None:
    told = [event("gen_ai.user.message", content='[{"text": "1 + "}, {"text": "1?"}]')]
    told.append(event("gen_ai.choice", message='[{"text": "2."}]', finish_reason="end_turn"))
    found = read_conversation(framework_span(1, events=told))
    assert found is not None
    assert (found.messages, found.answer) == (ASKED[1:2], ANSWERS[:1])
    found = read_conversation(framework_span(1, events=[event("gen_ai.user.message", content="[{}] is JSON")]))
    assert found is not None
    assert found.messages == [{"role": "user", "content": "[{}] is JSON"}]


def test_the_two_events_of_the_first_conventions() -> None:
    prompt = event("gen_ai.content.prompt", **{"gen_ai.prompt": json.dumps(ASKED)})
    for completion in (json.dumps(ANSWERS[:1]), json.dumps(ANSWERS[0]), "2."):
        told = event("gen_ai.content.completion", **{"gen_ai.completion": completion})
        found = read_conversation(framework_span(1, events=[prompt, told]))
        assert found is not None
        assert (found.messages, found.answer) == (ASKED, ANSWERS[:1])


def test_messages_of_parts_may_be_on_an_event() -> None:
    attributes = {
        "gen_ai.system_instructions": "Be brief.",
        "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": "1 + 1?"}]}]),
        "gen_ai.output.messages": [{"role": "assistant", "parts": [{"type": "text", "content": "2."}]}],
    }
    details = event("gen_ai.client.inference.operation.details", **attributes)
    found = read_conversation(framework_span(1, events=[event("exception"), details]))
    assert found is not None
    assert (found.messages, found.answer) == (ASKED[:2], ANSWERS[:1])
    assert found == read_conversation(framework_span(1, attributes))


@pytest.mark.parametrize(
    "instructions",
    [
        "Be brief.",
        '"Be brief."',
        [{"type": "text", "content": "Be "}, {"type": "text", "content": "brief."}],
        json.dumps([{"role": "system", "parts": [{"type": "text", "content": "Be brief."}]}]),
    ],
    ids=["text", "JSON text", "parts", "LiteLLM's messages"],
)
def test_instructions_are_a_system_message(instructions: Any) -> None:
    found = read_conversation(
        framework_span(1, {"gen_ai.system_instructions": instructions, "gen_ai.input.messages": []})
    )
    assert found is not None
    assert found.messages == ASKED[:1]


@pytest.mark.parametrize(
    "parts",
    [
        [
            {"type": "uri", "modality": "image", "uri": "https://images.test/1.png"},
            {"type": "blob", "modality": "image", "mime_type": "image/jpeg", "content": "AAAA"},
        ],
        [
            {"type": "image-url", "url": "https://images.test/1.png"},
            {"type": "binary", "media_type": "image/jpeg", "content": "AAAA"},
        ],
        IMAGES,
    ],
    ids=["GenAI", "Pydantic AI", "OpenAI"],
)
def test_images_are_parts(parts: list[dict[str, Any]]) -> None:
    others = [{"type": "reasoning", "content": "hm"}, {"type": "blob", "modality": "audio", "content": "AA"}, 7]
    said = {"role": "user", "parts": [{"type": "text", "content": "What is it?"}, *parts, *others]}
    found = read_conversation(framework_span(1, {"gen_ai.input.messages": [said]}))
    assert found is not None
    assert found.messages == [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, *IMAGES]}]


def test_litellm_keeps_tool_calls_beside_the_parts() -> None:
    messages = [
        {"role": "assistant", "parts": [], "tool_calls": [CALL]},
        {"role": "tool", "parts": [{"type": "text", "content": "2"}], "tool_call_id": "c1"},
    ]
    attributes = {"gen_ai.input.messages": json.dumps(messages), "gen_ai.output.messages": json.dumps(messages[:1])}
    found = read_conversation(framework_span(1, attributes))
    assert found is not None
    assert (found.messages, found.answer) == (ASKED[2:], ANSWERS[1:])


def test_the_last_message_of_a_run_of_pydantic_ai_is_its_answer() -> None:
    run = [
        {"role": "user", "parts": [{"type": "text", "content": "1 + 1?"}]},
        {"role": "assistant", "parts": [{"type": "text", "content": "2."}]},
    ]
    found = read_conversation(framework_span(1, {"pydantic_ai.all_messages": json.dumps(run)}))
    assert found is not None
    assert (found.source, found.messages, found.answer) == ("pydantic_ai", ASKED[1:2], ANSWERS[:1])
