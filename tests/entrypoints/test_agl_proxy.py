"""The LLM proxy beside a store in memory: what it serves is kept there, and no Kafka is needed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from openai import AsyncOpenAI

import lightstream.agl as agl
from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.settings import Settings
from tests.producers.llm_proxy.upstreams import ScriptedUpstream, completion


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings of a Kafka that is not there."""
    return Settings.load(data_dir=tmp_path, kafka_bootstrap_servers="127.0.0.1:1")


@pytest.fixture
def model_url(settings: Settings) -> Iterator[str]:
    numbers, upstream = itertools.count(), ScriptedUpstream()
    upstream.answer = lambda _: completion(id=f"chatcmpl-{next(numbers)}")
    server = HttpServer(upstream.app, settings, name="upstream", port=0, setting="")
    yield f"{server.start()}/v1"
    server.stop()


async def test_calls_are_kept_in_the_store_that_it_is_given(settings: Settings, model_url: str) -> None:
    store = agl.InMemoryLightningStore()
    entry = {"model_name": "m", "litellm_params": {"model": "hosted_vllm/served", "api_base": model_url}}
    proxy = agl.LLMProxy(port=0, model_list=[entry], store=store, settings=settings)
    await proxy.start()
    rollout = await store.start_rollout("task")
    llm = proxy.as_resource(rollout.rollout_id, rollout.attempt.attempt_id)
    async with AsyncOpenAI(base_url=llm.endpoint, api_key="none") as client:
        answers = [
            await client.chat.completions.create(model=llm.model, messages=[{"role": "user", "content": "hi"}])
            for _ in range(2)
        ]
    given = answers[-1].model_dump()
    assert given["prompt_token_ids"] == [1, 2, 3]
    assert given["choices"][0]["provider_specific_fields"] == {"token_ids": [7, 8]}
    spans = await store.query_spans(rollout.rollout_id)
    assert [(span.sequence_id, span.name) for span in spans] == [
        (1, "chat.completion"),
        (2, "raw_gen_ai_request"),
        (3, "chat.completion"),
        (4, "raw_gen_ai_request"),
    ]
    call, raw = spans[0], spans[1]
    assert (raw.trace_id, raw.parent_id) == (call.trace_id, call.span_id)
    assert raw.attributes["llm.hosted_vllm.messages"] == "[{'role': 'user', 'content': 'hi'}]"
    assert raw.attributes["llm.hosted_vllm.prompt_token_ids"] == "[1, 2, 3]"
    assert "'token_ids': [7, 8]" in raw.attributes["llm.hosted_vllm.choices"]
    assert raw.resource.attributes == {
        "agentlightning.rollout_id": rollout.rollout_id,
        "agentlightning.attempt_id": rollout.attempt.attempt_id,
        "agentlightning.span_sequence_id": 2,
    }
    triplets = agl.LlmProxyTraceToTriplet().adapt(list(spans))
    assert [triplet.response["token_ids"] for triplet in triplets] == [[7, 8], [7, 8]]
    async with httpx.AsyncClient(timeout=60) as client:
        body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        of_nobody = await client.post(f"{proxy.endpoint}/v1/chat/completions", json=body)
        unknown = await client.post(f"{proxy.endpoint}/rollout/none/attempt/a/v1/chat/completions", json=body)
    assert of_nobody.status_code == 200, "it is answered, and not recorded"
    assert unknown.status_code == 503
    assert "Rollout none not found" in unknown.text
    await proxy.stop()
    assert len(await store.query_spans(rollout.rollout_id)) == 4
