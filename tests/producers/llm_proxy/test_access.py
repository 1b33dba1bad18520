"""Who may use the proxy."""

from __future__ import annotations

from typing import Any

import anthropic
import httpx
import openai
import pytest

from lightstream.runtime.settings import Settings
from tests.producers.llm_proxy.conftest import StartProxy
from tests.producers.llm_proxy.upstreams import ScriptedUpstream
from tests.producers.support import read_spans

MESSAGES: list[Any] = [{"role": "user", "content": "hi"}]
PATHS = ("chat/completions", "completions", "responses", "messages", "messages/count_tokens")


def test_a_wrong_or_missing_token_is_refused_once_and_nothing_is_recorded(
    start_proxy: StartProxy, upstream: ScriptedUpstream, settings: Settings
) -> None:
    base = start_proxy(proxy_token=Settings.load(proxy_token="s3cret").proxy_token) + "/rollout/r/attempt/a"
    with httpx.Client(base_url=base, timeout=60) as http:
        for path in PATHS:
            for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "s3cret"}, {"x-api-key": "s3cre"}):
                assert http.post(f"/v1/{path}", json={}, headers=headers).status_code == 401
        assert http.get("/v1/models").status_code == 401
    with pytest.raises(openai.AuthenticationError, match="LIGHTSTREAM_PROXY_TOKEN"):
        openai.OpenAI(base_url=f"{base}/v1", api_key="wrong", max_retries=5).chat.completions.create(
            model="m", messages=MESSAGES
        )
    with pytest.raises(anthropic.AuthenticationError, match="LIGHTSTREAM_PROXY_TOKEN"):
        anthropic.Anthropic(base_url=base, api_key="wrong").messages.create(model="m", max_tokens=1, messages=MESSAGES)
    assert upstream.asked == []
    assert read_spans(settings) == []
    openai.OpenAI(base_url=f"{base}/v1", api_key="s3cret").chat.completions.create(model="m", messages=MESSAGES)
    anthropic.Anthropic(base_url=base, api_key="s3cret").messages.create(model="m", max_tokens=1, messages=MESSAGES)
    assert len(read_spans(settings)) == 2
    assert "authorization" not in upstream.headers[0]  # the token is the proxy's own
