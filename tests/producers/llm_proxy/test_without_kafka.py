"""While Kafka is away no answer is complete, whatever interface the agent speaks."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from lightstream.producers.llm_proxy import llm_proxy
from lightstream.runtime.ports import free_port
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import ServiceUnavailableError
from tests.producers.llm_proxy.upstreams import ScriptedUpstream, chunk, completion
from tests.producers.support import read_spans

MESSAGES: list[Any] = [{"role": "user", "content": "hi"}]
PATH = "/rollout/r/attempt/a/v1/chat/completions"


@pytest.mark.parametrize("streams", [False, True])
def test_without_kafka_the_answer_is_withheld(upstream: ScriptedUpstream, upstream_url: str, streams: bool) -> None:
    upstream.answer = lambda _: [chunk(1, first=True), chunk(2, finish_reason="stop"), b"data: [DONE]\n\n"]
    if not streams:
        upstream.answer = lambda _: completion()
    settings = Settings.load(
        kafka_bootstrap_servers=f"127.0.0.1:{free_port()}", publish_timeout_s=0.5, llm_upstream_url=upstream_url
    )
    proxy = llm_proxy(settings)
    body = {"messages": MESSAGES, "stream": streams}
    response = httpx.post(proxy.start() + PATH, json=body, timeout=30)
    if streams:
        assert "<1>" in response.text  # was passed on at once
        assert "<2>" not in response.text
        assert "[DONE]" not in response.text
        assert "could not be recorded" in response.text
    else:
        assert response.status_code == 503
        assert response.headers["retry-after"] == "1"
        assert "could not be recorded" in response.json()["error"]["message"]
    assert httpx.get(f"{proxy.url}/healthz", timeout=60).status_code == 200
    proxy.stop()


def test_no_kafka_at_all_is_said_before_the_start(upstream_url: str, settings: Settings) -> None:
    unnamed = settings.model_copy(update={"kafka_bootstrap_servers": None, "llm_upstream_url": upstream_url})
    with pytest.raises(ServiceUnavailableError, match="lightstream broker start"):
        llm_proxy(unnamed)


def test_a_broker_that_is_killed_and_restarted_costs_only_time(
    private_broker: Any, private_settings: Settings, upstream_url: str
) -> None:
    changes = {"llm_upstream_url": upstream_url, "publish_timeout_s": 180.0}
    proxy = llm_proxy(private_settings.model_copy(update=changes))
    url = proxy.start() + PATH
    assert httpx.post(url, json={"messages": MESSAGES}, timeout=60).status_code == 200
    private_broker.kill()

    async def ask_while_it_is_away() -> int:
        async with httpx.AsyncClient(timeout=240) as client:
            asking = asyncio.ensure_future(client.post(url, json={"messages": MESSAGES}))
            assert not (await asyncio.wait([asking], timeout=0.5))[0]
            await asyncio.to_thread(private_broker.start)
            return (await asking).status_code

    assert asyncio.run(ask_while_it_is_away()) == 200
    assert len(read_spans(private_settings)) == 2
    proxy.stop()


@pytest.mark.parametrize("path", ["completions", "responses", "messages"])
def test_without_kafka_no_dialect_answers(upstream: ScriptedUpstream, upstream_url: str, path: str) -> None:
    upstream.answer = lambda _: [chunk(1, first=True), chunk(2, finish_reason="stop"), b"data: [DONE]\n\n"]
    settings = Settings.load(
        kafka_bootstrap_servers=f"127.0.0.1:{free_port()}", publish_timeout_s=0.5, llm_upstream_url=upstream_url
    )
    proxy = llm_proxy(settings)
    body = {"model": "m", "messages": MESSAGES, "input": "hi", "prompt": "hi", "max_tokens": 9, "stream": True}
    answer = httpx.post(f"{proxy.start()}/v1/{path}", json=body, timeout=60).text
    proxy.stop()
    assert "could not be recorded" in answer
    for end in ('"finish_reason":"stop"', "message_delta", "message_stop", "response.completed", "[DONE]"):
        assert end not in answer.replace(" ", "")
