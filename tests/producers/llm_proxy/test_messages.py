"""Anthropic's interface, asked by Anthropic's own client: what agents of it get, and what is recorded."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import httpx
import pytest
from starlette.responses import Response

from lightstream.runtime.settings import Settings
from lightstream.schemas.packing import unpack_float32, unpack_int32
from tests.producers.llm_proxy.recorded import only_record
from tests.producers.llm_proxy.upstreams import (
    ScriptedUpstream,
    chunk,
    completion,
    event,
    streamed,
    tool_call_chunks,
)
from tests.producers.support import read_spans

MESSAGES: list[Any] = [{"role": "user", "content": "hi"}]
TOOLS: list[Any] = [{"name": "add", "description": "adds", "input_schema": {"type": "object", "properties": {}}}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}


@pytest.fixture
def claude(proxy_url: str) -> anthropic.Anthropic:
    """Anthropic's client as an agent has it, in attempt ``a`` of rollout ``r``."""
    return anthropic.Anthropic(base_url=f"{proxy_url}/rollout/r/attempt/a", api_key="none", max_retries=0)


def test_a_message_is_answered_and_recorded_with_its_tokens(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream, settings: Settings
) -> None:
    upstream.answer = lambda _: completion(usage={"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5})
    answer = claude.messages.create(
        model="m",
        max_tokens=9,
        system="be brief",
        messages=MESSAGES,
        stop_sequences=["x"],
        extra_body={"top_k": 5, "temperature": 0.5},
    )
    assert [block.text for block in answer.content if block.type == "text"] == ["aa"]
    assert (answer.role, answer.stop_reason, answer.model) == ("assistant", "end_turn", "m@4")
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (3, 2)
    (asked,) = upstream.asked
    assert asked["messages"] == [{"role": "system", "content": "be brief"}, *MESSAGES]
    assert [asked[name] for name in ("max_tokens", "stop", "top_k", "temperature")] == [9, ["x"], 5, 0.5]
    record, call = only_record(settings)
    assert list(unpack_int32(call.prompt_token_ids or b"")) == [1, 2, 3]
    assert list(unpack_int32(call.response_token_ids or b"")) == [7, 8]
    assert list(unpack_float32(call.response_logprobs or b"")) == [-0.5, -0.5]
    assert (call.response_id, call.requested_model, call.policy_version) == (answer.id, "m", 4)
    assert json.loads(call.request_json or "")["messages"] == asked["messages"]
    assert record.attributes["lightstream.proxy.api"] == "messages"


def test_a_stream_comes_event_by_event_and_its_end_waits_for_the_record(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream, settings: Settings
) -> None:
    pieces = streamed(chunk(1, first=True), chunk(2), None, chunk(3, finish_reason="stop"))
    upstream.answer = lambda _: pieces
    said: list[str] = []
    with claude.messages.stream(model="m", max_tokens=9, messages=MESSAGES) as stream:
        for text in stream.text_stream:
            if not said:
                assert read_spans(settings) == []  # the upstream hangs meanwhile, and there is no record yet
            said.append(text)
            if len(said) == 2:
                upstream.go_on.set()
            if text == "<3>":
                assert len(read_spans(settings)) == 1
        final = stream.get_final_message()
    assert said == ["<1>", "<2>", "<3>"]
    assert (final.stop_reason, final.usage.input_tokens, final.usage.output_tokens) == ("end_turn", 3, 4)
    record, call = only_record(settings)
    assert list(unpack_int32(call.response_token_ids or b"")) == [1, 2, 3]
    assert (call.response_id, call.streamed) == (final.id, True)
    assert record.attributes["lightstream.proxy.upstream_response_id"] == "chatcmpl-2"


@pytest.mark.parametrize("streams", [False, True])
def test_tools_are_offered_called_and_answered(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream, settings: Settings, streams: bool
) -> None:
    function = {"name": "add", "arguments": '{"a": 1}'}
    calls = [{"id": "call_a", "type": "function", "function": function}]
    calls += [{"id": "call_b", "type": "function", "function": {"name": "look", "arguments": '{"at": "x"}'}}]
    choice = {"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "tool_calls": calls}}
    upstream.answer = lambda _: streamed(*tool_call_chunks()) if streams else completion(choices=[choice])
    history: list[Any] = [
        {"role": "user", "content": "1+1"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "call_0", "name": "add", "input": {"a": 0}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_0", "content": "2"}]},
    ]
    arguments: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": history, "tools": TOOLS}
    arguments["tool_choice"] = {"type": "any"}
    if streams:
        with claude.messages.stream(**arguments) as stream:
            answer = stream.get_final_message()
    else:
        answer = claude.messages.create(**arguments)
    made = [(block.id, block.name, block.input) for block in answer.content if block.type == "tool_use"]
    assert made == [("call_a", "add", {"a": 1}), ("call_b", "look", {"at": "x"})]
    assert answer.stop_reason == "tool_use"
    (asked,) = upstream.asked
    assert asked["tool_choice"] == "required"
    assert asked["tools"][0]["function"]["name"] == "add"
    assert asked["tools"][0]["function"]["parameters"] == TOOLS[0]["input_schema"]
    assert [message["role"] for message in asked["messages"]] == ["user", "assistant", "tool"]
    assert asked["messages"][1]["tool_calls"][0]["id"] == asked["messages"][2]["tool_call_id"] == "call_0"
    _, call = only_record(settings)
    recorded = json.loads(call.response_json or "")["tool_calls"]
    assert [entry["function"]["name"] for entry in recorded] == ["add", "look"]
    assert call.finish_reason == "tool_calls"


def test_images_and_structured_output_reach_the_model_server(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream
) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    messages: list[Any] = [{"role": "user", "content": [image, {"type": "text", "text": "what?"}]}]
    claude.messages.create(
        model="m",
        max_tokens=9,
        messages=messages,
        extra_body={"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    )
    (asked,) = upstream.asked
    parts = asked["messages"][0]["content"]
    assert parts[0]["image_url"]["url"] == "data:image/png;base64,iVBORw0KGgo="
    assert parts[1] == {"type": "text", "text": "what?"}
    assert asked["response_format"]["json_schema"]["schema"] == SCHEMA


def test_errors_come_in_anthropic_s_shape_and_are_recorded(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream, settings: Settings
) -> None:
    upstream.answer = lambda _: Response('{"error": {"message": "slow down"}}', 429, media_type="application/json")
    with pytest.raises(anthropic.RateLimitError, match="slow down") as caught:
        claude.messages.create(model="m", max_tokens=9, messages=MESSAGES)
    assert caught.value.response.json()["error"]["type"] == "rate_limit_error"
    with pytest.raises(anthropic.BadRequestError, match="at least one message"):
        claude.messages.create(model="m", max_tokens=9, messages=[])
    assert [record.llm_call.http_status for record in read_spans(settings) if record.llm_call] == [429, 400]
    assert len(upstream.asked) == 1


@pytest.mark.parametrize("last", [b"data: {half\n\n", event({"error": {"message": "gone"}}), ConnectionError("gone")])
def test_a_stream_that_breaks_off_is_an_error(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream, settings: Settings, last: Any
) -> None:
    upstream.answer = lambda _: [chunk(1, first=True), None, last]
    said: list[str] = []

    def listen() -> None:
        with claude.messages.stream(model="m", max_tokens=9, messages=MESSAGES) as stream:
            for text in stream.text_stream:
                said.append(text)
                upstream.go_on.set()

    with pytest.raises(anthropic.APIError, match="LLM server"):
        listen()
    assert said == ["<1>"]
    _, call = only_record(settings)
    assert call.error_message
    assert list(unpack_int32(call.response_token_ids or b"")) == [1]


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"model": "m"}', b'{"model": "m", "messages": [1], "max_tokens": 1}'])
def test_requests_that_are_none_are_refused(proxy_url: str, upstream: ScriptedUpstream, body: bytes) -> None:
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        answer = httpx.post(proxy_url + path, content=body, timeout=60)
        assert answer.status_code == 400
        assert answer.json()["error"]["type"] == "invalid_request_error"
    assert upstream.asked == []


def test_tokens_are_counted_without_the_model(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream, settings: Settings
) -> None:
    short = claude.messages.count_tokens(model="m", messages=MESSAGES)
    long = claude.messages.count_tokens(model="m", messages=[{"role": "user", "content": "hello " * 50}], tools=TOOLS)
    assert 0 < short.input_tokens < 50 < long.input_tokens
    assert upstream.asked == []
    assert read_spans(settings) == []


def test_a_base_url_with_a_version_is_understood_too(proxy_url: str, settings: Settings) -> None:
    claude = anthropic.Anthropic(base_url=f"{proxy_url}/rollout/r/attempt/a/v1", api_key="none", max_retries=0)
    assert claude.messages.create(model="m", max_tokens=9, messages=MESSAGES).stop_reason == "end_turn"
    only_record(settings)


def test_a_chunk_of_token_ids_alone_does_not_end_a_tool_call(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream, settings: Settings
) -> None:
    """As servers send one where a character's bytes are in two tokens, in the middle of the arguments."""
    chunks = tool_call_chunks()
    silent = chunk(9)
    silent["choices"][0]["delta"] = {}
    upstream.answer = lambda _: streamed(*chunks[:2], silent, *chunks[2:])
    with claude.messages.stream(model="m", max_tokens=9, messages=MESSAGES, tools=TOOLS) as stream:
        answer = stream.get_final_message()
    made = [(block.name, block.input) for block in answer.content if block.type == "tool_use"]
    assert made == [("add", {"a": 1}), ("look", {"at": "x"})]
    _, call = only_record(settings)
    assert len(unpack_int32(call.response_token_ids or b"")) == len(chunks) + 1


@pytest.mark.parametrize("arguments", ['{"a": ', "2.5", "[1]", "null"])
def test_arguments_that_are_no_object_reach_the_agent_as_text_and_are_recorded_as_they_were(
    claude: anthropic.Anthropic, upstream: ScriptedUpstream, settings: Settings, arguments: str
) -> None:
    """A model that is still learning makes them; such a call is no failure of the model server's."""
    calls = [{"id": "call_a", "type": "function", "function": {"name": "add", "arguments": arguments}}]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    (good,) = completion()["choices"]
    upstream.answer = lambda _: completion(choices=[good | {"finish_reason": "tool_calls", "message": message}])
    answer = claude.messages.create(model="m", max_tokens=9, messages=MESSAGES, tools=TOOLS)
    (made,) = (block for block in answer.content if block.type == "tool_use")
    assert made.input == {"unreadable_arguments": arguments}
    _, call = only_record(settings)
    assert call.error_message is None
    assert list(unpack_int32(call.response_token_ids or b"")) == [7, 8]
    assert json.loads(call.response_json or "")["tool_calls"][0]["function"]["arguments"] == arguments
