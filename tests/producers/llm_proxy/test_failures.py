"""Calls that fail: the agent hears why, the record says so, and nothing beside them suffers."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import openai
import pytest
from starlette.responses import Response

from lightstream.runtime.ports import free_port
from lightstream.runtime.settings import Settings
from tests.producers.llm_proxy.conftest import StartProxy
from tests.producers.llm_proxy.recorded import only_call
from tests.producers.llm_proxy.upstreams import ScriptedUpstream, completion
from tests.producers.support import read_spans
from tests.support.waiting import eventually

MESSAGES: list[Any] = [{"role": "user", "content": "hi"}]
PATH = "/rollout/r/attempt/a/v1/chat/completions"
MIB = 1024 * 1024


def test_an_upstream_s_error_is_passed_on_and_recorded(
    client: openai.OpenAI, upstream: ScriptedUpstream, settings: Settings
) -> None:
    upstream.answer = lambda _: Response('{"error": {"message": "out of memory"}}', 500, media_type="application/json")
    with pytest.raises(openai.InternalServerError, match="out of memory"):
        client.chat.completions.create(model="m", messages=MESSAGES)
    call = only_call(settings)
    assert call.http_status == 500
    assert "out of memory" in (call.error_message or "")
    assert call.response_token_ids is None


def test_an_upstream_that_hangs_ends_in_504(
    start_proxy: StartProxy, upstream: ScriptedUpstream, settings: Settings
) -> None:
    upstream.answer = lambda _: None
    response = httpx.post(start_proxy(llm_request_timeout_s=2.0) + PATH, json={"messages": MESSAGES}, timeout=30)
    assert response.status_code == 504
    assert "2 s" in response.json()["error"]["message"]
    assert only_call(settings).http_status == 504
    eventually(lambda: upstream.gone == 1, what="the upstream is told")


def test_an_upstream_that_is_not_there_ends_in_502(start_proxy: StartProxy, settings: Settings) -> None:
    url = start_proxy(llm_upstream_url=f"http://127.0.0.1:{free_port()}/v1")
    response = httpx.post(url + PATH, json={"messages": MESSAGES}, timeout=30)
    assert response.status_code == 502
    assert only_call(settings).http_status == 502
    assert httpx.get(f"{url}/v1/models", timeout=60).status_code == 502


def test_answers_of_the_model_server_and_added_time_are_told(
    start_proxy: StartProxy, upstream: ScriptedUpstream, settings: Settings
) -> None:
    url = start_proxy()
    before = _series(url)
    assert httpx.post(url + PATH, json={"messages": MESSAGES}, timeout=30).status_code == 200
    upstream.answer = lambda _: Response("{}", 500, media_type="application/json")
    assert httpx.post(url + PATH, json={"messages": MESSAGES}, timeout=30).status_code == 500
    after = _series(url)
    assert {name for name, value in after.items() if value != before.get(name, 0.0)} == {
        'lightstream_proxy_upstream_answers_total{status="200"}',
        'lightstream_proxy_upstream_answers_total{status="500"}',
        "lightstream_proxy_added_seconds_count",
    }
    assert after["lightstream_proxy_added_seconds_count"] - before["lightstream_proxy_added_seconds_count"] == 2


def _series(url: str) -> dict[str, float]:
    """Counts of the proxy's own series."""
    lines = httpx.get(f"{url}/metrics", timeout=60).text.splitlines()
    own = (line.rsplit(" ", 1) for line in lines if line.startswith("lightstream_proxy_"))
    return {
        name: float(value) for name, value in own if not any(word in name for word in ("_bucket", "_sum", "_created"))
    }


def test_without_any_upstream_the_next_step_is_named(start_proxy: StartProxy, settings: Settings) -> None:
    response = httpx.post(start_proxy(llm_upstream_url=None) + PATH, json={"messages": MESSAGES}, timeout=30)
    assert response.status_code == 503
    assert response.headers["retry-after"]
    for hint in ("LIGHTSTREAM_LLM_UPSTREAM_URL", "lightstream up --policy"):
        assert hint in response.json()["error"]["message"]
    assert only_call(settings).http_status == 503


@pytest.mark.parametrize("answer", [b"<html>", b"[]", b'{"no": "choices"}', b""])
def test_an_answer_that_is_no_completion_ends_in_502(
    client: openai.OpenAI, upstream: ScriptedUpstream, settings: Settings, answer: bytes
) -> None:
    upstream.answer = lambda _: Response(answer, media_type="application/json")
    with pytest.raises(openai.InternalServerError, match="not a completion"):
        client.chat.completions.create(model="m", messages=MESSAGES)
    assert only_call(settings).http_status == 502


def test_token_ids_that_cannot_be_are_left_out_and_said(
    client: openai.OpenAI, upstream: ScriptedUpstream, settings: Settings
) -> None:
    upstream.answer = lambda _: completion(prompt_token_ids=[1, 2**40])
    assert client.chat.completions.create(model="m", messages=MESSAGES).choices[0].message.content == "aa"
    (record,) = read_spans(settings)
    assert record.llm_call is not None
    assert record.llm_call.prompt_token_ids is None
    assert record.llm_call.response_token_ids is not None
    assert "int32" in record.status_message


def test_a_server_that_refuses_our_extras_is_asked_without_them(
    client: openai.OpenAI, upstream: ScriptedUpstream, settings: Settings
) -> None:
    def answer(asked: Any) -> Any:
        if "return_token_ids" in asked:
            return Response('{"error": {"message": "Unknown parameter: return_token_ids"}}', 400)
        body = completion()
        del body["prompt_token_ids"], body["choices"][0]["token_ids"]
        return body

    upstream.answer = answer
    for _ in range(2):
        assert client.chat.completions.create(model="m", messages=MESSAGES).choices[0].message.content == "aa"
    assert len(upstream.asked) == 3  # it is asked with the extras once only
    assert all(r.llm_call and r.llm_call.prompt_token_ids is None for r in read_spans(settings))


def test_a_request_that_is_no_json_is_refused_and_recorded(proxy_url: str, settings: Settings) -> None:
    assert httpx.post(proxy_url + PATH, content=b'{"messages": ', timeout=60).status_code == 400
    assert only_call(settings).http_status == 400


def test_a_prompt_of_20_mb_is_recorded_whole(
    client: openai.OpenAI, upstream: ScriptedUpstream, settings: Settings
) -> None:
    text = "x" * (20 * MIB)
    client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}])
    assert upstream.asked[0]["messages"][0]["content"] == text
    call = only_call(settings)
    assert len(call.request_json or "") > 20 * MIB
    assert call.response_token_ids is not None


def test_a_record_over_the_limit_loses_its_text_first_and_says_so(
    start_proxy: StartProxy, upstream: ScriptedUpstream, settings: Settings
) -> None:
    url = start_proxy(record_bytes_max=MIB)
    upstream.answer = lambda _: completion(prompt_token_ids=list(range(200_000)))  # 800 kB
    httpx.post(url + PATH, json={"messages": [{"role": "user", "content": "x" * MIB}]}, timeout=30).raise_for_status()
    upstream.answer = lambda _: completion(prompt_token_ids=list(range(400_000)))  # 1.6 MB: beyond any saving
    httpx.post(url + PATH, json={"messages": MESSAGES}, timeout=30).raise_for_status()
    first, second = read_spans(settings)
    assert first.attributes["lightstream.truncated"] == ["llm_call.request_json"]
    assert first.llm_call is not None
    assert len(first.llm_call.prompt_token_ids or b"") == 800_000
    assert first.llm_call.response_json
    assert second.llm_call is not None
    assert second.llm_call.prompt_token_ids is None
    assert second.llm_call.response_token_ids is None
    assert "llm_call.prompt_token_ids" in second.attributes["lightstream.truncated"]


def test_a_request_over_the_limit_is_refused_and_recorded(
    start_proxy: StartProxy, upstream: ScriptedUpstream, settings: Settings
) -> None:
    url = start_proxy(llm_request_bytes_max=2000)
    response = httpx.post(url + PATH, json={"messages": [{"role": "user", "content": "x" * 3000}]}, timeout=60)
    assert response.status_code == 413
    assert "2,000" in response.json()["error"]["message"]
    assert only_call(settings).http_status == 413
    assert upstream.asked == []


def test_a_failing_call_harms_none_beside_it(proxy_url: str, upstream: ScriptedUpstream, settings: Settings) -> None:
    def answer(asked: Any) -> Any:
        number = int(asked["messages"][0]["content"])
        return [None, Response("no", 500), completion(id=f"c{number}")][min(number, 2)]

    upstream.answer = answer

    async def ask(client: httpx.AsyncClient, number: int) -> int:
        url = f"{proxy_url}/rollout/r{number}/attempt/a/v1/chat/completions"
        return (await client.post(url, json={"messages": [{"role": "user", "content": str(number)}]})).status_code

    async def ask_all() -> list[int]:
        async with httpx.AsyncClient(timeout=60) as client:
            hanging = asyncio.ensure_future(ask(client, 0))
            others = await asyncio.gather(*(ask(client, number) for number in range(1, 30)))
            upstream.go_on.set()
            return [await hanging, *others]

    assert asyncio.run(ask_all()) == [200, 500] + [200] * 28
    records = {record.rollout_id: record for record in read_spans(settings)}
    assert len(records) == 30
    for number in range(2, 30):
        call = records[f"r{number}"].llm_call
        assert call is not None
        assert call.response_id == f"c{number}"


def test_a_whole_answer_over_the_limit_ends_in_502(
    start_proxy: StartProxy, upstream: ScriptedUpstream, settings: Settings
) -> None:
    upstream.answer = lambda _: completion(filler="x" * 5000)
    response = httpx.post(start_proxy(llm_response_bytes_max=5000) + PATH, json={"messages": MESSAGES}, timeout=30)
    assert response.status_code == 502
    assert "5,000 bytes" in response.json()["error"]["message"]
    assert only_call(settings).http_status == 502
