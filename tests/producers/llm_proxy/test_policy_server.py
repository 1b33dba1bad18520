"""The proxy before the real policy server: whatever the agent speaks, the recorded tokens are the server's own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, TypeAlias

import anthropic
import httpx
import openai
import pytest
from pydantic import SecretStr

from lightstream.producers.llm_proxy import llm_proxy
from lightstream.runtime.settings import Settings
from lightstream.schemas.packing import unpack_float32, unpack_int32
from tests.producers.support import read_spans

PROMPT = "what is 2+3? Ünïcode 🙂"
TOKENS_MAX = 9
Ask: TypeAlias = Callable[[str, bool], tuple[str, str]]


def _chat(url: str, streams: bool) -> tuple[str, str]:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    arguments: dict[str, Any] = {"model": "policy", "max_tokens": TOKENS_MAX, "temperature": 0}
    arguments["messages"] = [{"role": "user", "content": PROMPT}]
    if not streams:
        answer = client.chat.completions.create(**arguments)
        return answer.id, answer.choices[0].message.content or ""
    chunks = list(client.chat.completions.create(**arguments, stream=True))
    return chunks[0].id, "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


def _responses(url: str, streams: bool) -> tuple[str, str]:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    arguments: dict[str, Any] = {"model": "policy", "max_output_tokens": TOKENS_MAX, "temperature": 0, "input": PROMPT}
    if not streams:
        answer = client.responses.create(**arguments)
        return answer.id, answer.output_text
    events: list[Any] = list(client.responses.create(**arguments, stream=True))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    last = events[-1]
    assert last.type in ("response.completed", "response.incomplete")
    assert last.response.output_text == text
    return last.response.id, text


def _messages(url: str, streams: bool) -> tuple[str, str]:
    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    arguments: dict[str, Any] = {"model": "policy", "max_tokens": TOKENS_MAX, "extra_body": {"temperature": 0}}
    arguments["messages"] = [{"role": "user", "content": PROMPT}]
    if not streams:
        answer = client.messages.create(**arguments)
        return answer.id, "".join(block.text for block in answer.content if block.type == "text")
    with client.messages.stream(**arguments) as stream:
        text = "".join(stream.text_stream)
        return stream.get_final_message().id, text


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Those of the cluster, where the policy server asks for a token."""
    return settings.model_copy(update={"policy_token": SecretStr("s3cret")})


@pytest.fixture
def before_policy(settings: Settings, policy: str) -> Iterator[str]:
    """A proxy that finds the policy server by itself."""
    proxy = llm_proxy(settings)
    yield proxy.start()
    proxy.stop()


@pytest.mark.parametrize("ask", [_chat, _responses, _messages], ids=["chat", "responses", "messages"])
def test_the_announced_policy_server_is_found_and_its_tokens_are_exact(
    settings: Settings, policy: str, before_policy: str, ask: Ask
) -> None:
    assert settings.policy_token is not None  # the proxy has to send it
    asked = {
        "model": "policy",
        "messages": [{"role": "user", "content": PROMPT}],
        "max_tokens": TOKENS_MAX,
        "temperature": 0,
        "logprobs": True,
        "return_token_ids": True,
    }
    token = {"authorization": f"Bearer {settings.policy_token.get_secret_value()}"}
    direct = httpx.post(f"{policy}/v1/chat/completions", json=asked, headers=token, timeout=60).json()
    (choice,) = direct["choices"]
    seen = [ask(f"{before_policy}/rollout/r/attempt/{streams}", streams) for streams in (False, True)]
    assert [text for _, text in seen] == [choice["message"]["content"]] * 2
    records = read_spans(settings)
    assert [record.attempt_id for record in records] == ["False", "True"]
    for record, (response_id, _), streams in zip(records, seen, (False, True), strict=True):
        call = record.llm_call
        assert call is not None
        assert call.response_id == response_id
        assert list(unpack_int32(call.prompt_token_ids or b"")) == direct["prompt_token_ids"]
        assert list(unpack_int32(call.response_token_ids or b"")) == choice["token_ids"]
        expected = [entry["logprob"] for entry in choice["logprobs"]["content"]]
        assert list(unpack_float32(call.response_logprobs or b"")) == pytest.approx(expected, abs=1e-4)
        ends = list(unpack_int32(call.response_token_ends or b""))
        texts = [(call.response_tokens_text or "")[a:b] for a, b in pairwise([0, *ends])]
        assert texts == [entry["token"] for entry in choice["logprobs"]["content"]]
        assert (call.policy_version, call.response_model, call.streamed) == (0, "policy@0", streams)
        assert json.loads(call.response_json or "")["content"] == choice["message"]["content"]
