"""OpenAI's completions: passed through, token ids and log-probabilities as in chats."""

from __future__ import annotations

import json
from typing import Any

import openai

from lightstream.runtime.settings import Settings
from lightstream.schemas.packing import unpack_float32, unpack_int32
from lightstream.schemas.records import LlmCall
from tests.producers.llm_proxy.conftest import StartProxy
from tests.producers.llm_proxy.upstreams import ScriptedUpstream, event
from tests.producers.support import read_spans


def _choice(index: int, text: str, token: int, *, finish_reason: str | None = "stop", **more: Any) -> dict[str, Any]:
    logprobs = {"tokens": [text], "token_logprobs": [-float(token)], "top_logprobs": None, "text_offset": [0]}
    known = {"index": index, "text": text, "finish_reason": finish_reason, "logprobs": logprobs, "token_ids": [token]}
    return known | more


def _answer(*choices: dict[str, Any]) -> dict[str, Any]:
    return {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m@4", "choices": list(choices)}


def _calls(settings: Settings) -> list[LlmCall]:
    return [record.llm_call for record in read_spans(settings) if record.llm_call is not None]


def test_a_completion_is_recorded_with_its_tokens_and_the_agent_sees_what_it_asked_for(
    client: openai.OpenAI, upstream: ScriptedUpstream, settings: Settings
) -> None:
    upstream.answer = lambda _: _answer(_choice(0, "yes", 7, prompt_token_ids=[1, 2]))
    answer = client.completions.create(model="m", prompt="is it?", max_tokens=3)
    assert (answer.choices[0].text, answer.choices[0].logprobs) == ("yes", None)
    assert {"token_ids", "prompt_token_ids"}.isdisjoint(answer.choices[0].model_extra or {})
    assert (upstream.asked[0]["logprobs"], upstream.asked[0]["return_token_ids"]) == (1, True)
    full = client.completions.create(model="m", prompt="is it?", logprobs=2, extra_body={"return_token_ids": True})
    assert full.choices[0].logprobs is not None
    assert (full.choices[0].model_extra or {})["token_ids"] == [7]
    assert upstream.asked[1]["logprobs"] == 2
    first, _ = read_spans(settings)
    assert first.attributes["gen_ai.operation.name"] == "text_completion"
    call = _calls(settings)[0]
    assert list(unpack_int32(call.prompt_token_ids or b"")) == [1, 2]
    assert list(unpack_int32(call.response_token_ids or b"")) == [7]
    assert list(unpack_float32(call.response_logprobs or b"")) == [-7.0]
    assert json.loads(call.request_json or "") == {"model": "m", "prompt": "is it?", "max_tokens": 3}
    assert json.loads(call.response_json or "")["content"] == "yes"


def test_each_choice_of_each_prompt_is_a_record_with_its_own_prompt(
    client: openai.OpenAI, upstream: ScriptedUpstream, settings: Settings
) -> None:
    choices = [_choice(i, f"<{i}>", i, prompt_token_ids=[i // 2]) for i in range(4)]
    upstream.answer = lambda _: _answer(*choices)
    assert len(client.completions.create(model="m", prompt=["a", "b"], n=2).choices) == 4
    calls = _calls(settings)
    assert [list(unpack_int32(call.prompt_token_ids or b"")) for call in calls] == [[0], [0], [1], [1]]
    assert [list(unpack_int32(call.response_token_ids or b"")) for call in calls] == [[0], [1], [2], [3]]


def test_a_stream_of_several_choices_is_passed_on_and_recorded(
    client: openai.OpenAI, upstream: ScriptedUpstream, settings: Settings
) -> None:
    upstream.answer = lambda _: [
        _answer(_choice(0, "a", 5, finish_reason=None, prompt_token_ids=[1])),
        _answer(_choice(1, "c", 6, prompt_token_ids=[2])),
        None,
        _answer(_choice(0, "b", 8, finish_reason="length")),
        event(b"[DONE]"),
    ]
    prompts = [[1], [2]]  # as token ids
    said: list[tuple[int, str]] = []
    for piece in client.completions.create(model="m", prompt=prompts, stream=True):
        said.append((piece.choices[0].index, piece.choices[0].text))
        assert piece.choices[0].logprobs is None
        if len(said) == 2:
            assert read_spans(settings) == []  # one choice is over, the other is not
            upstream.go_on.set()
        if len(said) == 3:
            assert len(read_spans(settings)) == 2
    assert said == [(0, "a"), (1, "c"), (0, "b")]
    first, second = _calls(settings)
    assert (list(unpack_int32(first.response_token_ids or b"")), first.finish_reason) == ([5, 8], "length")
    assert (list(unpack_int32(second.prompt_token_ids or b"")), second.finish_reason) == ([2], "stop")
    assert json.loads(first.response_json or "") == {"role": "assistant", "content": "ab"}


def test_one_prompt_of_token_ids_is_one_call(
    client: openai.OpenAI, upstream: ScriptedUpstream, settings: Settings
) -> None:
    upstream.answer = lambda _: [_answer(_choice(0, "a", 5, prompt_token_ids=[1, 2, 3]))]
    assert len(list(client.completions.create(model="m", prompt=[1, 2, 3], stream=True))) == 1
    (call,) = _calls(settings)
    assert call.error_message is None


def test_litellm_completes_too(start_proxy: StartProxy, upstream: ScriptedUpstream, settings: Settings) -> None:
    upstream.answer = lambda _: _answer(_choice(0, "yes", 7))
    url = start_proxy(
        llm_backend="litellm", llm_upstream_api_key=Settings.load(llm_upstream_api_key="k").llm_upstream_api_key
    )
    client = openai.OpenAI(base_url=f"{url}/rollout/r/attempt/a/v1", api_key="none", max_retries=0)
    assert client.completions.create(model="text-completion-openai/m", prompt="is it?").choices[0].text == "yes"
    (call,) = _calls(settings)
    assert (call.finish_reason, call.error_message) == ("stop", None)
