"""The LiteLLM back end: any provider by its model string, token ids where the provider gives them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import httpx
import openai
import pytest
from starlette.responses import Response

from lightstream.runtime.settings import Settings
from lightstream.schemas.packing import unpack_float32, unpack_int32
from tests.producers.llm_proxy.conftest import StartProxy
from tests.producers.llm_proxy.upstreams import ScriptedUpstream, chunk, completion
from tests.producers.support import read_spans

MESSAGES: list[Any] = [{"role": "user", "content": "hi"}]
SECRET = Settings.load(llm_upstream_api_key="s3cret").llm_upstream_api_key


def _client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/rollout/r/attempt/a/v1", api_key="none", max_retries=0)


@pytest.mark.parametrize("model", ["hosted_vllm/m", "openai/m"])
def test_token_ids_are_captured_from_servers_that_give_them(
    start_proxy: StartProxy, upstream: ScriptedUpstream, settings: Settings, model: str
) -> None:
    client = _client(start_proxy(llm_backend="litellm", llm_upstream_api_key=SECRET))
    answer = client.chat.completions.create(model=model, messages=MESSAGES)
    assert answer.choices[0].message.content == "aa"
    assert answer.choices[0].logprobs is None
    assert upstream.asked[0]["model"] == "m"
    assert upstream.headers[0]["authorization"] == "Bearer s3cret"
    (record,) = read_spans(settings)
    call = record.llm_call
    assert call is not None
    assert list(unpack_int32(call.prompt_token_ids or b"")) == [1, 2, 3]
    assert list(unpack_int32(call.response_token_ids or b"")) == [7, 8]
    assert list(unpack_float32(call.response_logprobs or b"")) == [-0.5, -0.5]
    assert (call.requested_model, call.http_status) == (model, 200)


def test_a_provider_of_another_shape_is_translated_and_has_no_token_ids(
    start_proxy: StartProxy, upstream: ScriptedUpstream, upstream_url: str, settings: Settings
) -> None:
    upstream.answer = lambda _: {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": [{"type": "text", "text": "hello"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 1},
    }
    url = start_proxy(
        llm_backend="litellm",
        llm_model="anthropic/claude-x",
        llm_upstream_url=upstream_url.removesuffix("/v1"),
        llm_upstream_api_key=SECRET,
    )
    answer = _client(url).chat.completions.create(model="anything", messages=MESSAGES, max_tokens=5)
    assert answer.choices[0].message.content == "hello"
    assert upstream.asked[0]["model"] == "claude-x"
    assert upstream.headers[0]["x-api-key"] == "s3cret"
    (record,) = read_spans(settings)
    assert record.llm_call is not None
    assert record.llm_call.response_token_ids is None
    assert record.llm_call.error_message is None
    assert record.attributes["gen_ai.usage.input_tokens"] == 3


def test_a_stream_is_passed_on_and_recorded(
    start_proxy: StartProxy, upstream: ScriptedUpstream, settings: Settings
) -> None:
    upstream.answer = lambda _: [chunk(1, first=True), chunk(2), chunk(3, finish_reason="stop"), b"data: [DONE]\n\n"]
    client = _client(start_proxy(llm_backend="litellm", llm_upstream_api_key=SECRET))
    stream = client.chat.completions.create(model="hosted_vllm/m", messages=MESSAGES, stream=True)
    assert "".join(piece.choices[0].delta.content or "" for piece in stream) == "<1><2><3>"
    (record,) = read_spans(settings)
    assert record.llm_call is not None
    assert (record.llm_call.streamed, record.llm_call.finish_reason) == (True, "stop")
    assert '"content":"<1><2><3>"' in (record.llm_call.response_json or "")


def test_a_provider_s_refusal_is_passed_on_and_recorded(
    start_proxy: StartProxy, upstream: ScriptedUpstream, settings: Settings
) -> None:
    upstream.answer = lambda _: Response('{"error": {"message": "slow down"}}', 429, media_type="application/json")
    client = _client(start_proxy(llm_backend="litellm", llm_upstream_api_key=SECRET))
    with pytest.raises(openai.RateLimitError, match="slow down"):
        client.chat.completions.create(model="openai/m", messages=MESSAGES)
    upstream.answer = lambda _: completion()
    with pytest.raises(openai.BadRequestError, match="nobody/m"):
        client.chat.completions.create(model="nobody/m", messages=MESSAGES)
    records = read_spans(settings)
    assert [record.llm_call.http_status for record in records if record.llm_call] == [429, 400]


def test_a_request_cannot_steer_litellm(
    start_proxy: StartProxy, upstream: ScriptedUpstream, settings: Settings
) -> None:
    url = start_proxy(llm_backend="litellm", llm_upstream_api_key=SECRET) + "/rollout/r/attempt/a/v1/chat/completions"
    steering = {"api_base": "http://127.0.0.1:9", "api_key": "x", "timeout": 0.001, "mock_response": "no"}
    answer = httpx.post(url, json={"model": "hosted_vllm/m", "messages": MESSAGES} | steering, timeout=60)
    assert answer.json()["choices"][0]["message"]["content"] == "aa"
    assert upstream.headers[0]["authorization"] == "Bearer s3cret"
    assert not steering.keys() & upstream.asked[0].keys()
    strange = {"model": "hosted_vllm/m", "messages": MESSAGES, "tools": 5}
    assert httpx.post(url, json=strange, timeout=60).status_code == 400
    assert [record.llm_call.http_status for record in read_spans(settings) if record.llm_call] == [200, 400]


def test_litellm_is_imported_only_where_it_is_used() -> None:
    program = (
        "import sys, lightstream.producers.llm_proxy, lightstream.producers; "
        "sys.exit(str({'litellm', 'torch', 'faust', 'duckdb'} & set(sys.modules)) if 'litellm' in sys.modules else 0)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
