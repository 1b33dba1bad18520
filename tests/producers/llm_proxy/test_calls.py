"""Calls that go well: recorded before the agent is answered, exactly as the model server gave them."""

from __future__ import annotations

import json
from typing import Any

import httpx
import openai

from lightstream.runtime.services import find
from lightstream.runtime.settings import Settings
from lightstream.schemas.packing import unpack_float32, unpack_int32
from lightstream.schemas.records import LlmCall, SpanRecord, SpanStatus
from tests.producers.llm_proxy.conftest import StartProxy
from tests.producers.llm_proxy.upstreams import ScriptedUpstream, chunk, event
from tests.producers.support import read_spans

MESSAGES: list[Any] = [{"role": "user", "content": "hi"}]


def _call(record: SpanRecord) -> LlmCall:
    assert record.llm_call is not None
    return record.llm_call


def _numbers(call: LlmCall) -> tuple[list[int], list[int], list[float]]:
    assert call.prompt_token_ids is not None
    assert call.response_token_ids is not None
    assert call.response_logprobs is not None
    return (
        list(unpack_int32(call.prompt_token_ids)),
        list(unpack_int32(call.response_token_ids)),
        list(unpack_float32(call.response_logprobs)),
    )


def test_a_call_is_durable_before_its_answer(client: openai.OpenAI, settings: Settings) -> None:
    answer = client.chat.completions.create(model="m", messages=MESSAGES, temperature=0.5)
    (record,) = read_spans(settings)
    assert (record.rollout_id, record.attempt_id) == ("r", "a")
    assert record.status is SpanStatus.OK
    assert 0 < record.start_unix_nano <= record.end_unix_nano
    call = _call(record)
    assert _numbers(call) == ([1, 2, 3], [7, 8], [-0.5, -0.5])
    assert (call.response_id, call.requested_model, call.response_model) == (answer.id, "m", "m@4")
    assert (call.policy_version, call.http_status, call.finish_reason) == (4, 200, "stop")
    assert json.loads(call.request_json or "") == {"model": "m", "messages": MESSAGES, "temperature": 0.5}
    assert json.loads(call.response_json or "") == {"role": "assistant", "content": "aa"}
    assert record.attributes["gen_ai.response.id"] == answer.id


def test_the_upstream_is_asked_for_tokens_that_the_agent_does_not_see(
    client: openai.OpenAI, upstream: ScriptedUpstream
) -> None:
    answer = client.chat.completions.create(model="m", messages=MESSAGES)
    assert (upstream.asked[0]["return_token_ids"], upstream.asked[0]["logprobs"]) == (True, True)
    assert answer.choices[0].logprobs is None
    assert "token_ids" not in (answer.choices[0].model_extra or {})
    full = client.chat.completions.create(
        model="m", messages=MESSAGES, logprobs=True, extra_body={"return_token_ids": True}
    )
    assert full.choices[0].logprobs is not None
    assert (full.choices[0].model_extra or {})["token_ids"] == [7, 8]


def test_a_stream_is_passed_on_and_recorded(
    client: openai.OpenAI, upstream: ScriptedUpstream, settings: Settings
) -> None:
    upstream.answer = lambda _: [chunk(1, first=True), chunk(2), chunk(3, finish_reason="stop"), b"data: [DONE]\n\n"]
    chunks = list(client.chat.completions.create(model="m", messages=MESSAGES, stream=True))
    assert [c.choices[0].delta.content for c in chunks] == ["<1>", "<2>", "<3>"]
    assert all(c.choices[0].logprobs is None for c in chunks)
    (record,) = read_spans(settings)
    call = _call(record)
    assert _numbers(call) == ([1, 2, 3], [1, 2, 3], [-1.0, -2.0, -3.0])
    assert (call.streamed, call.finish_reason, call.error_message) == (True, "stop", None)
    assert json.loads(call.response_json or "") == {"role": "assistant", "content": "<1><2><3>"}


def test_the_end_of_a_stream_waits_for_the_record_and_nothing_else_does(
    client: openai.OpenAI, upstream: ScriptedUpstream, settings: Settings
) -> None:
    upstream.answer = lambda _: [chunk(1, first=True), None, chunk(2, finish_reason="stop"), event(b"[DONE]")]
    stream = client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
    assert next(stream).choices[0].delta.content == "<1>"  # while the upstream hangs
    assert read_spans(settings) == []
    upstream.go_on.set()
    assert next(stream).choices[0].finish_reason == "stop"
    assert len(read_spans(settings)) == 1
    assert list(stream) == []


def test_several_choices_are_records_of_their_own(
    client: openai.OpenAI, upstream: ScriptedUpstream, settings: Settings
) -> None:
    def answer(asked: Any) -> Any:
        choices = [
            {"index": i, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop", "token_ids": [i]}
            for i in reversed(range(asked["n"]))
        ]
        return {"id": "c", "model": "m", "prompt_token_ids": [1], "choices": choices}

    upstream.answer = answer
    client.chat.completions.create(model="m", messages=MESSAGES, n=3)
    records = read_spans(settings)
    assert [_call(record).choice_index for record in records] == [0, 1, 2]
    assert [list(unpack_int32(_call(r).response_token_ids or b"")) for r in records] == [[0], [1], [2]]
    assert len({record.span_id for record in records}) == 3
    assert _call(records[0]).response_logprobs is None  # not said: not invented


def test_calls_without_a_rollout_are_kept_under_their_trace(
    proxy_url: str, settings: Settings, upstream: ScriptedUpstream
) -> None:
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    headers = {"traceparent": f"00-{trace_id}-00f067aa0ba902b7-01"}
    httpx.post(
        f"{proxy_url}/v1/chat/completions", json={"messages": MESSAGES}, headers=headers, timeout=60
    ).raise_for_status()
    by_header = {"x-lightstream-rollout-id": "r", "x-lightstream-attempt-id": "a"}
    httpx.post(
        f"{proxy_url}/v1/chat/completions", json={"messages": MESSAGES}, headers=by_header, timeout=60
    ).raise_for_status()
    records = sorted(read_spans(settings), key=lambda record: record.rollout_id or "")
    assert [(record.rollout_id, record.attempt_id) for record in records] == [(None, None), ("r", "a")]
    assert (records[0].trace_id, records[0].parent_id) == (trace_id, "00f067aa0ba902b7")
    only_one = httpx.post(
        f"{proxy_url}/v1/chat/completions",
        json={"messages": MESSAGES},
        headers={"x-lightstream-rollout-id": "r"},
        timeout=60,
    )
    assert only_one.status_code == 400
    assert len(upstream.asked) == 2


def test_models_and_health_are_answered(client: openai.OpenAI, proxy_url: str, settings: Settings) -> None:
    assert [model.id for model in client.models.list()] == ["m"]
    assert httpx.get(f"{proxy_url}/v1/models", timeout=60).json()["data"] == [{"id": "m"}]
    assert httpx.get(f"{proxy_url}/healthz", timeout=60).json() == {"status": "ok"}
    service = find(settings, "proxy")
    assert service is not None
    assert service.address == proxy_url


def test_key_and_model_of_the_settings_are_used(start_proxy: StartProxy, upstream: ScriptedUpstream) -> None:
    secret = Settings.load(llm_upstream_api_key="s3cret").llm_upstream_api_key
    url = start_proxy(llm_upstream_api_key=secret, llm_model="bigger")
    httpx.post(f"{url}/v1/chat/completions", json={"model": "m", "messages": MESSAGES}, timeout=60).raise_for_status()
    assert upstream.asked[0]["model"] == "bigger"
    assert upstream.headers[0]["authorization"] == "Bearer s3cret"
