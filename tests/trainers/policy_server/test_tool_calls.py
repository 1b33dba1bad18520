"""Calls of tools: read as vLLM reads them, whole and streamed, and refused where they cannot be read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.settings import Settings
from lightstream.trainers.run.model.tiny_model import make_tiny_model
from lightstream.trainers.servers.chat_api.requests import RequestError, parse_chat_request
from lightstream.trainers.servers.chat_api.tool_calls import content_length, how_calls_are_written, read_tool_calls
from lightstream.trainers.servers.cpu import policy_server
from lightstream.trainers.servers.cpu.checkpoint import load_tokenizer
from tests.trainers.policy_server.memory import learn_by_heart
from tests.trainers.policy_server.support import reference_logprobs

TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "add", "description": "a+b", "parameters": {"type": "object"}}}
]
CALL = '<tool_call>{"name": "add", "arguments": {"a": 1, "b": "é"}}</tool_call>'
OTHER = '<tool_call>\n{"name": "sub", "arguments": {}}\n</tool_call>'
ANSWERS = {
    "call": CALL,
    "two": f"Let me see.{CALL}{OTHER}",
    "broken": "So: <tool_call>{'name': add}</tool_call> ok",
    "none": "It is <b>3</b>, not <tool",
}
EXPECTED: dict[str, tuple[str | None, list[tuple[str, Any]]]] = {
    "call": (None, [("add", {"a": 1, "b": "é"})]),
    "two": ("Let me see.", [("add", {"a": 1, "b": "é"}), ("sub", {})]),
    "broken": (ANSWERS["broken"], []),
    "none": (ANSWERS["none"], []),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return learn_by_heart(tmp_path_factory.mktemp("by heart"), ANSWERS, TOOLS)


@pytest.fixture(scope="module")
def client(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    settings = Settings.load(data_dir=tmp_path_factory.mktemp("policy"))
    server: HttpServer = policy_server(settings, checkpoint=model, follows_resources=False)
    server.start()
    yield openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    server.stop()


def _ask(client: openai.OpenAI, text: str, **parameters: Any) -> Any:
    arguments: dict[str, Any] = {
        "model": "policy",
        "max_tokens": 200,
        "temperature": 0,
        "messages": [{"role": "user", "content": text}],
        "tools": TOOLS,
        "logprobs": True,
        "extra_body": {"return_token_ids": True},
    }
    return client.chat.completions.create(**(arguments | parameters))


@pytest.mark.parametrize("text", ANSWERS)
def test_calls_are_given_apart_and_tokens_stay_those_sampled(client: openai.OpenAI, model: Path, text: str) -> None:
    answer = _ask(client, text)
    (choice,) = answer.choices
    content, calls = EXPECTED[text]
    assert choice.message.content == content
    made = choice.message.tool_calls or []
    assert [(call.function.name, json.loads(call.function.arguments)) for call in made] == calls
    assert len({call.id for call in made} | {""}) == len(calls) + 1
    assert choice.finish_reason == ("tool_calls" if calls else "stop")
    tokenizer = load_tokenizer(model)
    ids = choice.model_extra["token_ids"]
    assert tokenizer.decode(ids) == f"{ANSWERS[text]}<|im_end|>"
    prompt = answer.model_extra["prompt_token_ids"]
    assert '"name": "add"' in tokenizer.decode(prompt)
    said = [entry.logprob for entry in choice.logprobs.content]
    assert said == pytest.approx(reference_logprobs(model, prompt, ids).tolist(), abs=1e-4)


@pytest.mark.parametrize("text", ANSWERS)
def test_a_stream_says_the_same(client: openai.OpenAI, text: str) -> None:
    whole = _ask(client, text).choices[0]
    stream: Any = _ask(client, text, stream=True)
    pieces = [choice for chunk in stream for choice in chunk.choices]
    assert "".join(piece.delta.content or "" for piece in pieces) == (whole.message.content or "")
    assert [token for piece in pieces for token in piece.model_extra["token_ids"]] == whole.model_extra["token_ids"]
    calls = [call for piece in pieces for call in piece.delta.tool_calls or []]
    assert [call.index for call in calls] == list(range(len(EXPECTED[text][1])))
    expected = [(call.function.name, call.function.arguments) for call in whole.message.tool_calls or []]
    assert [(call.function.name, call.function.arguments) for call in calls] == expected
    assert pieces[-1].finish_reason == whole.finish_reason


def test_only_the_first_call_where_parallel_ones_are_not_wanted(client: openai.OpenAI) -> None:
    (choice,) = _ask(client, "two", parallel_tool_calls=False).choices
    assert [call.function.name for call in choice.message.tool_calls] == ["add"]


def test_a_call_that_was_cut_off_is_text(client: openai.OpenAI) -> None:
    (choice,) = _ask(client, "call", max_tokens=30).choices
    assert (choice.message.content, choice.message.tool_calls) == (CALL[:30], None)
    assert choice.finish_reason == "length"


def test_without_tools_or_with_none_chosen_a_call_is_text(client: openai.OpenAI) -> None:
    (choice,) = _ask(client, "call", tool_choice="none").choices
    assert (choice.message.content, choice.message.tool_calls) == (CALL, None)


def test_a_conversation_with_calls_continues_the_tokens_that_were_sampled(client: openai.OpenAI) -> None:
    """What the model wrote is read back to it as it was, so that both calls are one sequence in training."""
    first = _ask(client, "call")
    message = first.choices[0].message
    (call,) = message.tool_calls
    messages = [
        {"role": "user", "content": "call"},
        message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "2"},
    ]
    second = _ask(client, "", messages=messages, max_tokens=1)
    before = first.model_extra["prompt_token_ids"] + first.choices[0].model_extra["token_ids"]
    assert second.model_extra["prompt_token_ids"][: len(before)] == before


def test_a_model_whose_template_has_no_tools_is_refused(tmp_path: Path) -> None:
    model = make_tiny_model(tmp_path / "model")
    template = model / "chat_template.jinja"
    template.write_text(template.read_text("utf-8").replace("tools", "nothing"), "utf-8")
    server = policy_server(Settings.load(data_dir=tmp_path), checkpoint=model, follows_resources=False)
    server.start()
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    with pytest.raises(openai.BadRequestError, match=r"no place for tools.*put vLLM") as caught:
        _ask(client, "hi")
    assert caught.value.param == "tools"
    assert _ask(client, "hi", tool_choice="none", max_tokens=1).choices
    server.stop()


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("{{ messages }}", "no place for tools"),
        ("{% if tools %}<|python_tag|>", "another form"),
        ("{% if tools %}<tool_call>\n<function=", "another form"),
        ("{% if tools %}<tool_call>{", None),
    ],
)
def test_templates_that_write_calls_otherwise_are_told_apart(template: str, problem: str | None) -> None:
    found = how_calls_are_written(template)
    assert (found is None) if problem is None else (found is not None and problem in found)


@pytest.mark.parametrize(
    ("change", "parameter"),
    [
        ({"tools": {}}, "tools"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": 3}}]}, "tools"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"tools": ["add"]}, "tools"),
        ({"tools": TOOLS, "tool_choice": "required"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "add"}}}, "tool_choice"),
        ({"tools": TOOLS, "parallel_tool_calls": "no"}, "parallel_tool_calls"),
        ({"messages": [{"role": "assistant", "tool_calls": "add"}]}, "messages"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"type": "function"}]}]}, "messages"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format"),
    ],
)
def test_what_cannot_be_taken_is_refused_by_name(change: dict[str, Any], parameter: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_chat_request({"messages": [{"role": "user", "content": "hi"}]} | change)
    assert (caught.value.parameter, caught.value.status) == (parameter, 400)


def test_a_refusal_of_forced_tokens_says_what_to_do_instead() -> None:
    for change in ({"tool_choice": "required"}, {"response_format": {"type": "json_object"}}):
        with pytest.raises(RequestError, match="put vLLM behind the proxy"):
            parse_chat_request({"messages": [{"role": "user", "content": "hi"}], "tools": TOOLS} | change)


@pytest.mark.parametrize("arguments", [None, "", "{", "[1]", 7, '{"a": 1}', {"a": 1}])
def test_arguments_in_the_conversation_are_objects_for_the_template(arguments: Any) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": arguments}}
    request = parse_chat_request({"messages": [{"role": "assistant", "content": None, "tool_calls": [call]}]})
    given_ = request.messages[0]["tool_calls"][0]["function"]["arguments"]
    assert given_ == ({"a": 1} if arguments in ('{"a": 1}', {"a": 1}) else {})


PIECES = st.sampled_from(["<tool_call>", "</tool_call>", '{"name": "a", "arguments": {}}', "<tool", "_call>", "x", "{"])


@given(st.lists(PIECES, max_size=8).map("".join))
def test_what_is_sent_early_is_content_in_the_end(text: str) -> None:
    """Whatever follows: what a stream has sent as content before the end is the beginning of the whole content."""
    content = read_tool_calls(text).content or ""
    for end in range(len(text) + 1):
        assert content.startswith(text[: content_length(text[:end])])


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>",
        "<tool_call>{}",
        "<tool_call>[]</tool_call>",
        "<tool_call>" + "[" * 100_000,
        '<tool_call>{"name": 1}',
    ],
)
def test_what_is_no_call_is_content(text: str) -> None:
    said = read_tool_calls(text)
    assert (said.content, list(said.tool_calls)) == (text, [])
