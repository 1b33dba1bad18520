"""OpenAI's responses, asked by OpenAI's own client: what agents of it get, and what is recorded."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from starlette.responses import Response

from lightstream.producers.llm_proxy.dialects.responses import Conversations
from lightstream.runtime.settings import Settings
from lightstream.schemas.packing import unpack_float32, unpack_int32
from tests.producers.llm_proxy.conftest import StartProxy
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

USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False}
TOOL: dict[str, Any] = {"type": "function", "name": "add", "description": "adds", "parameters": PARAMETERS}


def test_a_response_is_answered_and_recorded_with_its_tokens(
    client: openai.OpenAI, upstream: ScriptedUpstream, settings: Settings
) -> None:
    upstream.answer = lambda _: completion(usage=USAGE)
    answer = client.responses.create(
        model="m", input="hi", instructions="be brief", max_output_tokens=9, temperature=0.5
    )
    assert (answer.output_text, answer.status, answer.model) == ("aa", "completed", "m@4")
    assert answer.usage is not None
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (3, 2)
    (asked,) = upstream.asked
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    assert (asked["messages"], asked["max_tokens"], asked["temperature"]) == (messages, 9, 0.5)
    record, call = only_record(settings)
    assert list(unpack_int32(call.prompt_token_ids or b"")) == [1, 2, 3]
    assert list(unpack_int32(call.response_token_ids or b"")) == [7, 8]
    assert list(unpack_float32(call.response_logprobs or b"")) == [-0.5, -0.5]
    assert (call.response_id, call.policy_version, call.finish_reason) == (answer.id, 4, "stop")
    assert json.loads(call.request_json or "")["messages"] == messages
    assert record.attributes["lightstream.proxy.api"] == "responses"


def test_a_stream_comes_event_by_event_and_its_end_waits_for_the_record(
    client: openai.OpenAI, upstream: ScriptedUpstream, settings: Settings
) -> None:
    upstream.answer = lambda _: streamed(chunk(1, first=True), chunk(2), None, chunk(3, finish_reason="stop"))
    said: list[str] = []
    numbers: list[int] = []
    final: Any = None
    for piece in client.responses.create(model="m", input="hi", stream=True):
        numbers.append(piece.sequence_number)
        if piece.type == "response.output_text.delta":
            said.append(piece.delta)
            if len(said) == 1:
                assert read_spans(settings) == []  # the upstream hangs meanwhile, and there is no record yet
            if len(said) == 2:
                upstream.go_on.set()
        if piece.type == "response.completed":
            assert len(read_spans(settings)) == 1
            final = piece.response
    assert said == ["<1>", "<2>", "<3>"]
    assert numbers == list(range(len(numbers)))
    assert (final.output_text, final.usage.input_tokens, final.usage.output_tokens) == ("<1><2><3>", 3, 4)
    record, call = only_record(settings)
    assert list(unpack_int32(call.response_token_ids or b"")) == [1, 2, 3]
    assert (call.response_id, call.streamed) == (final.id, True)
    assert record.attributes["lightstream.proxy.upstream_response_id"] == "chatcmpl-2"


@pytest.mark.parametrize("streams", [False, True])
def test_tools_are_offered_called_and_answered(
    client: openai.OpenAI, upstream: ScriptedUpstream, settings: Settings, streams: bool
) -> None:
    function = {"name": "add", "arguments": '{"a": 1}'}
    calls = [{"id": "call_a", "type": "function", "function": function}]
    calls += [{"id": "call_b", "type": "function", "function": {"name": "look", "arguments": '{"at": "x"}'}}]
    choice = {"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant", "tool_calls": calls}}
    upstream.answer = lambda _: streamed(*tool_call_chunks()) if streams else completion(choices=[choice], usage=USAGE)
    history: list[Any] = [
        {"role": "user", "content": "1+1"},
        {"type": "function_call", "call_id": "call_0", "name": "add", "arguments": '{"a": 0}'},
        {"type": "function_call_output", "call_id": "call_0", "output": "2"},
    ]
    arguments: dict[str, Any] = {"model": "m", "input": history, "tools": [TOOL], "tool_choice": "required"}
    if streams:
        with client.responses.stream(**arguments) as stream:
            answer: Any = stream.until_done().get_final_response()
    else:
        answer = client.responses.create(**arguments)
    made = [(item.call_id, item.name, item.arguments) for item in answer.output if item.type == "function_call"]
    assert made == [("call_a", "add", '{"a": 1}'), ("call_b", "look", '{"at": "x"}')]
    (asked,) = upstream.asked
    assert asked["tool_choice"] == "required"
    assert asked["tools"][0]["function"]["name"] == "add"
    assert asked["tools"][0]["function"]["parameters"] == PARAMETERS
    assert [message["role"] for message in asked["messages"]] == ["user", "assistant", "tool"]
    assert asked["messages"][1]["tool_calls"][0]["id"] == asked["messages"][2]["tool_call_id"] == "call_0"
    _, call = only_record(settings)
    recorded = json.loads(call.response_json or "")["tool_calls"]
    assert [entry["function"]["name"] for entry in recorded] == ["add", "look"]
    assert call.finish_reason == "tool_calls"


def test_images_and_structured_output_reach_the_model_server(client: openai.OpenAI, upstream: ScriptedUpstream) -> None:
    upstream.answer = lambda _: completion(usage=USAGE)
    image = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": "auto"}
    content: Any = [{"role": "user", "content": [image, {"type": "input_text", "text": "what?"}]}]
    text: Any = {"format": {"type": "json_schema", "name": "n", "schema": PARAMETERS, "strict": True}}
    client.responses.create(model="m", input=content, text=text)
    (asked,) = upstream.asked
    parts = asked["messages"][0]["content"]
    assert parts[0]["image_url"]["url"] == "data:image/png;base64,iVBORw0KGgo="
    assert parts[1]["text"] == "what?"
    assert asked["response_format"]["json_schema"]["schema"] == PARAMETERS
    assert asked["response_format"]["json_schema"]["strict"] is True


@pytest.mark.parametrize("streams", [False, True])
def test_a_request_goes_on_from_an_earlier_response(
    client: openai.OpenAI, upstream: ScriptedUpstream, streams: bool
) -> None:
    """With the new items alone: the model sees the whole conversation, without the earlier instructions."""
    upstream.answer = lambda asked: streamed(*tool_call_chunks()) if asked.get("stream") else completion(usage=USAGE)
    asked: Any = {"model": "m", "input": "add", "instructions": "be brief", "tools": [TOOL]}
    first: Any
    if streams:
        with client.responses.stream(**asked) as stream:
            first = stream.get_final_response()
    else:
        first = client.responses.create(**asked)
    calls = [item for item in first.output if item.type == "function_call"]
    items: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "2"} for call in calls]
    upstream.answer = lambda _: completion(usage=USAGE, id="chatcmpl-second")
    second = client.responses.create(model="m", input=items or "go on", previous_response_id=first.id)
    assert second.previous_response_id == first.id
    client.responses.create(model="m", input="and?", previous_response_id=second.id, store=False)
    roles = [[message["role"] for message in asked["messages"]] for asked in upstream.asked]
    answer = ["assistant", "tool", "tool"] if streams else ["assistant", "user"]
    assert roles == [["system", "user"], ["user", *answer], ["user", *answer, "assistant", "user"]]


def test_conversations_are_forgotten_oldest_first_and_never_walked_in_circles() -> None:
    kept = Conversations(bytes_max=30)
    kept.keep("a", None, ["1" * 8])
    kept.keep("b", "a", ["2" * 8])
    assert kept.until("b") == ["1" * 8, "2" * 8]
    kept.keep("c", "b", ["3" * 8])
    assert kept.until("a") == ["1" * 8]
    for unknown in ("c", "b"):
        with pytest.raises(ValueError, match="'b' is not known here"):
            kept.until(unknown)
    kept.keep("a", "a", ["1"])
    with pytest.raises(ValueError, match="'a' is not known here"):
        kept.until("a")


def test_another_proxy_knows_nothing_of_a_conversation(start_proxy: StartProxy, upstream: ScriptedUpstream) -> None:
    upstream.answer = lambda _: completion(usage=USAGE, id="chatcmpl-elsewhere")
    one, another = (openai.OpenAI(base_url=f"{start_proxy()}/v1", api_key="none", max_retries=0) for _ in range(2))
    first = one.responses.create(model="m", input="hi")
    assert one.responses.create(model="m", input="and?", previous_response_id=first.id).output_text
    with pytest.raises(openai.BadRequestError, match="not known here"):
        another.responses.create(model="m", input="and?", previous_response_id=first.id)


def test_a_response_that_was_not_to_be_stored_is_not(client: openai.OpenAI, upstream: ScriptedUpstream) -> None:
    upstream.answer = lambda _: completion(usage=USAGE, id="chatcmpl-unstored")
    first = client.responses.create(model="m", input="hi", store=False)
    with pytest.raises(openai.BadRequestError, match="not known here"):
        client.responses.create(model="m", input="hi", previous_response_id=first.id)


def test_what_the_proxy_does_not_keep_is_refused_by_name(
    client: openai.OpenAI, upstream: ScriptedUpstream, settings: Settings
) -> None:
    with pytest.raises(openai.BadRequestError, match="previous_response_id"):
        client.responses.create(model="m", input="hi", previous_response_id="resp_1")
    with pytest.raises(openai.BadRequestError, match="conversation"):
        client.responses.create(model="m", input="hi", conversation="conv_1")
    with pytest.raises(openai.BadRequestError, match="background"):
        client.responses.create(model="m", input="hi", background=True)
    with pytest.raises(openai.BadRequestError, match="input"):
        client.responses.create(model="m")
    upstream.answer = lambda _: Response('{"error": {"message": "slow down"}}', 429, media_type="application/json")
    with pytest.raises(openai.RateLimitError, match="slow down"):
        client.responses.create(model="m", input="hi")
    assert [r.llm_call.http_status for r in read_spans(settings) if r.llm_call] == [400, 400, 400, 400, 429]


@pytest.mark.parametrize("last", [b"data: {half\n\n", event({"error": {"message": "gone"}}), ConnectionError("gone")])
def test_a_stream_that_breaks_off_is_an_error(
    client: openai.OpenAI, upstream: ScriptedUpstream, settings: Settings, last: Any
) -> None:
    upstream.answer = lambda _: [chunk(1, first=True), None, last]
    seen: list[str] = []
    with pytest.raises(openai.APIError, match="LLM server"):  # noqa: PT012  # the error comes while iterating
        for piece in client.responses.create(model="m", input="hi", stream=True):
            seen.append(piece.type)
            if piece.type == "response.output_text.delta":
                upstream.go_on.set()
    assert "response.completed" not in seen
    _, call = only_record(settings)
    assert call.error_message
    assert list(unpack_int32(call.response_token_ids or b"")) == [1]
