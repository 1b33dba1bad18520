"""Calls that fail: the agent hears why, the record says so, and nothing beside them suffers."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
from collections.abc import AsyncGenerator, Callable
from typing import Any

import anthropic
import httpx
import openai
import pytest
from starlette.responses import Response

from lightstream.producers.llm_proxy import llm_proxy, upstream_of
from lightstream.producers.llm_proxy.call import Call, Caller
from lightstream.producers.llm_proxy.dialects import CHAT
from lightstream.producers.llm_proxy.exchange import Exchange
from lightstream.producers.llm_proxy.recorder import CallRecorder
from lightstream.producers.llm_proxy.relay import StreamRelay
from lightstream.producers.llm_proxy.turn import Turn
from lightstream.producers.llm_proxy.upstream import UpstreamAnswer, UpstreamError
from lightstream.schemas.clock import SystemClock
from lightstream.schemas.errors import ServiceUnavailableError
from lightstream.schemas.kafka import KafkaPublisher
from lightstream.schemas.packing import unpack_int32
from lightstream.schemas.records import LlmCall, SpanStatus
from lightstream.schemas.settings import Settings
from tests.producers.llm_proxy.conftest import StartProxy
from tests.producers.llm_proxy.upstreams import ScriptedUpstream, chunk, completion, event
from tests.producers.support import read_spans
from tests.support.waiting import eventually

MESSAGES: list[Any] = [{"role": "user", "content": "hi"}]
PATH = "/rollout/r/attempt/a/v1/chat/completions"
MIB = 1024 * 1024


def _unused_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _only_call(settings: Settings) -> LlmCall:
    (record,) = read_spans(settings)
    assert record.llm_call is not None
    assert (record.status is SpanStatus.ERROR) == (record.llm_call.error_message is not None)
    return record.llm_call


def test_an_upstream_s_error_is_passed_on_and_recorded(
    client: openai.OpenAI, upstream: ScriptedUpstream, settings: Settings
) -> None:
    upstream.answer = lambda _: Response('{"error": {"message": "out of memory"}}', 500, media_type="application/json")
    with pytest.raises(openai.InternalServerError, match="out of memory"):
        client.chat.completions.create(model="m", messages=MESSAGES)
    call = _only_call(settings)
    assert call.http_status == 500
    assert "out of memory" in (call.error_message or "")
    assert call.response_token_ids is None


def test_an_upstream_that_hangs_ends_in_504(
    start_proxy: StartProxy, upstream: ScriptedUpstream, settings: Settings
) -> None:
    upstream.answer = lambda _: None
    response = httpx.post(start_proxy(llm_request_timeout_s=0.3) + PATH, json={"messages": MESSAGES}, timeout=30)
    assert response.status_code == 504
    assert "0.3 s" in response.json()["error"]["message"]
    assert _only_call(settings).http_status == 504
    eventually(lambda: upstream.gone == 1, what="the upstream is told")


def test_an_upstream_that_is_not_there_ends_in_502(start_proxy: StartProxy, settings: Settings) -> None:
    url = start_proxy(llm_upstream_url=f"http://127.0.0.1:{_unused_port()}/v1")
    response = httpx.post(url + PATH, json={"messages": MESSAGES}, timeout=30)
    assert response.status_code == 502
    assert _only_call(settings).http_status == 502
    assert httpx.get(f"{url}/v1/models").status_code == 502


def test_without_any_upstream_the_next_step_is_named(start_proxy: StartProxy, settings: Settings) -> None:
    response = httpx.post(start_proxy(llm_upstream_url=None) + PATH, json={"messages": MESSAGES}, timeout=30)
    assert response.status_code == 503
    assert response.headers["retry-after"]
    for hint in ("LIGHTSTREAM_LLM_UPSTREAM_URL", "lightstream policy"):
        assert hint in response.json()["error"]["message"]
    assert _only_call(settings).http_status == 503


@pytest.mark.parametrize("answer", [b"<html>", b"[]", b'{"no": "choices"}', b""])
def test_an_answer_that_is_no_completion_ends_in_502(
    client: openai.OpenAI, upstream: ScriptedUpstream, settings: Settings, answer: bytes
) -> None:
    upstream.answer = lambda _: Response(answer, media_type="application/json")
    with pytest.raises(openai.InternalServerError, match="no completion"):
        client.chat.completions.create(model="m", messages=MESSAGES)
    assert _only_call(settings).http_status == 502


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


BREAKS: list[Callable[[], list[Any]]] = [
    lambda: [chunk(1, first=True), None, ConnectionError("gone")],
    lambda: [chunk(1, first=True), None],
    lambda: [chunk(1, first=True), None, event({"error": {"message": "gone"}})],
]


@pytest.mark.parametrize("pieces", BREAKS, ids=["broken", "cut short", "error event"])
def test_a_stream_that_breaks_off_is_an_error_and_recorded(
    client: openai.OpenAI, upstream: ScriptedUpstream, settings: Settings, pieces: Callable[[], list[Any]]
) -> None:
    upstream.answer = lambda _: pieces()
    said: list[str | None] = []
    with pytest.raises(openai.APIError):  # noqa: PT012  # the error comes while iterating
        for piece in client.chat.completions.create(model="m", messages=MESSAGES, stream=True):
            said += [piece.choices[0].delta.content]
            upstream.go_on.set()
    assert said == ["<1>"]
    call = _only_call(settings)
    assert call.error_message
    assert list(unpack_int32(call.response_token_ids or b"")) == [1]


def test_a_stream_that_breaks_off_after_its_last_token_is_complete(settings: Settings) -> None:
    async def pieces() -> AsyncGenerator[bytes]:
        yield event(chunk(1, first=True, finish_reason="stop"))
        raise UpstreamError("gone", status=502)

    async def relayed() -> list[bytes]:
        recorder = CallRecorder(publisher, SystemClock())
        exchange = Exchange(settings, upstream_of(settings), recorder, SystemClock())
        answer = UpstreamAnswer(200, pieces=pieces())
        turn = Turn(Call(Caller("r", "a", "0" * 32)), CHAT, translation=await CHAT.translate({}))
        relay = StreamRelay(exchange, turn, answer)
        return [piece async for piece in relay.pieces()]

    publisher = KafkaPublisher(settings)
    assert asyncio.run(relayed()) == [event(chunk(1, first=True, finish_reason="stop"))]
    publisher.close()
    assert _only_call(settings).error_message is None


def test_a_stream_that_falls_silent_ends_in_an_error(
    start_proxy: StartProxy, upstream: ScriptedUpstream, settings: Settings
) -> None:
    upstream.answer = lambda _: [chunk(1, first=True), None]
    url = start_proxy(llm_request_timeout_s=0.3)
    client = openai.OpenAI(base_url=url + PATH.removesuffix("/chat/completions"), api_key="none", max_retries=0)
    with pytest.raises(openai.APIError, match=r"0.3 s"):
        list(client.chat.completions.create(model="m", messages=MESSAGES, stream=True))
    assert "0.3 s" in (_only_call(settings).error_message or "")


@pytest.mark.parametrize("streams", [False, True])
def test_the_call_of_a_client_that_disconnects_is_recorded(
    proxy_url: str, upstream: ScriptedUpstream, settings: Settings, streams: bool
) -> None:
    upstream.answer = lambda _: [chunk(1, first=True), None] if streams else None
    with socket.create_connection(("127.0.0.1", int(proxy_url.rpartition(":")[2]))) as connection:
        data = json.dumps({"messages": MESSAGES, "stream": streams}).encode()
        head = f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(data)}\r\n\r\n"
        connection.sendall(head.encode() + data)
        eventually(lambda: upstream.asked)
        if streams:
            assert connection.recv(10)
    eventually(lambda: read_spans(settings), what="the call is recorded")
    call = _only_call(settings)
    assert call.http_status == 499
    assert "disconnected" in (call.error_message or "")
    assert (call.response_token_ids is not None) == streams
    eventually(lambda: upstream.gone == 1, what="the upstream is told")


def test_a_request_that_is_no_json_is_refused_and_recorded(proxy_url: str, settings: Settings) -> None:
    assert httpx.post(proxy_url + PATH, content=b'{"messages": ').status_code == 400
    assert _only_call(settings).http_status == 400


def test_a_prompt_of_20_mb_is_recorded_whole(
    client: openai.OpenAI, upstream: ScriptedUpstream, settings: Settings
) -> None:
    text = "x" * (20 * MIB)
    client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}])
    assert upstream.asked[0]["messages"][0]["content"] == text
    call = _only_call(settings)
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
    response = httpx.post(url + PATH, json={"messages": [{"role": "user", "content": "x" * 3000}]})
    assert response.status_code == 413
    assert "2,000" in response.json()["error"]["message"]
    assert _only_call(settings).http_status == 413
    assert upstream.asked == []


@pytest.mark.parametrize("streams", [False, True])
def test_without_kafka_the_answer_is_withheld(upstream: ScriptedUpstream, upstream_url: str, streams: bool) -> None:
    upstream.answer = lambda _: [chunk(1, first=True), chunk(2, finish_reason="stop"), b"data: [DONE]\n\n"]
    if not streams:
        upstream.answer = lambda _: completion()
    settings = Settings.load(
        kafka_bootstrap_servers=f"127.0.0.1:{_unused_port()}", publish_timeout_s=0.5, llm_upstream_url=upstream_url
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
    assert httpx.get(f"{proxy.url}/healthz").status_code == 200
    proxy.stop()


def test_no_kafka_at_all_is_said_before_the_start(upstream_url: str, settings: Settings) -> None:
    unnamed = settings.model_copy(update={"kafka_bootstrap_servers": None, "llm_upstream_url": upstream_url})
    with pytest.raises(ServiceUnavailableError, match="lightstream broker start"):
        llm_proxy(unnamed)


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


def test_a_broker_that_is_killed_and_restarted_costs_only_time(
    private_broker: Any, private_settings: Settings, upstream_url: str
) -> None:
    proxy = llm_proxy(private_settings.model_copy(update={"llm_upstream_url": upstream_url}))
    url = proxy.start() + PATH
    assert httpx.post(url, json={"messages": MESSAGES}, timeout=60).status_code == 200
    private_broker.kill()

    async def ask_while_it_is_away() -> int:
        async with httpx.AsyncClient(timeout=60) as client:
            asking = asyncio.ensure_future(client.post(url, json={"messages": MESSAGES}))
            assert not (await asyncio.wait([asking], timeout=0.5))[0]
            await asyncio.to_thread(private_broker.start)
            return (await asking).status_code

    assert asyncio.run(ask_while_it_is_away()) == 200
    assert len(read_spans(private_settings)) == 2
    proxy.stop()


def test_a_chunk_that_is_no_json_ends_the_stream_with_an_error(
    client: openai.OpenAI, upstream: ScriptedUpstream, settings: Settings
) -> None:
    upstream.answer = lambda _: [chunk(1, first=True), b"data: {half\n\n", chunk(3, finish_reason="stop")]
    with pytest.raises(openai.APIError, match="no JSON object"):
        list(client.chat.completions.create(model="m", messages=MESSAGES, stream=True))
    call = _only_call(settings)  # not a call with a hole among its tokens
    assert "{half" in (call.error_message or "")
    assert list(unpack_int32(call.response_token_ids or b"")) == [1]


@pytest.mark.parametrize("piece", [chunk(1), b": still here\n\n", b"data"], ids=["tokens", "comments", "no event"])
@pytest.mark.parametrize(
    ("limit", "said"), [({"llm_stream_timeout_s": 0.3}, "0.3 s"), ({"llm_response_bytes_max": 5000}, "5,000 bytes")]
)
def test_a_stream_that_never_ends_is_ended(
    start_proxy: StartProxy,
    upstream: ScriptedUpstream,
    settings: Settings,
    piece: Any,
    limit: dict[str, Any],
    said: str,
) -> None:
    upstream.answer = lambda _: itertools.chain([chunk(1, first=True)], itertools.repeat(piece))
    url = start_proxy(**limit)
    client = openai.OpenAI(base_url=url + PATH.removesuffix("/chat/completions"), api_key="none", max_retries=0)
    with pytest.raises(openai.APIError, match=said):
        list(client.chat.completions.create(model="m", messages=MESSAGES, stream=True))
    assert said in (_only_call(settings).error_message or "")
    eventually(lambda: upstream.gone == 1, what="the upstream is told")


def test_a_whole_answer_over_the_limit_ends_in_502(
    start_proxy: StartProxy, upstream: ScriptedUpstream, settings: Settings
) -> None:
    upstream.answer = lambda _: completion(filler="x" * 5000)
    response = httpx.post(start_proxy(llm_response_bytes_max=5000) + PATH, json={"messages": MESSAGES}, timeout=30)
    assert response.status_code == 502
    assert "5,000 bytes" in response.json()["error"]["message"]
    assert _only_call(settings).http_status == 502


PATHS = ("chat/completions", "completions", "responses", "messages", "messages/count_tokens")


def test_a_wrong_or_missing_token_is_refused_once_and_nothing_is_recorded(
    start_proxy: StartProxy, upstream: ScriptedUpstream, settings: Settings
) -> None:
    base = start_proxy(proxy_token=Settings.load(proxy_token="s3cret").proxy_token) + "/rollout/r/attempt/a"
    with httpx.Client(base_url=base) as http:
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


@pytest.mark.parametrize("path", ["completions", "responses", "messages"])
def test_without_kafka_no_dialect_answers(upstream: ScriptedUpstream, upstream_url: str, path: str) -> None:
    upstream.answer = lambda _: [chunk(1, first=True), chunk(2, finish_reason="stop"), b"data: [DONE]\n\n"]
    settings = Settings.load(
        kafka_bootstrap_servers=f"127.0.0.1:{_unused_port()}", publish_timeout_s=0.5, llm_upstream_url=upstream_url
    )
    proxy = llm_proxy(settings)
    body = {"model": "m", "messages": MESSAGES, "input": "hi", "prompt": "hi", "max_tokens": 9, "stream": True}
    answer = httpx.post(f"{proxy.start()}/v1/{path}", json=body, timeout=60).text
    proxy.stop()
    assert "could not be recorded" in answer
    for end in ('"finish_reason":"stop"', "message_delta", "message_stop", "response.completed", "[DONE]"):
        assert end not in answer.replace(" ", "")


@pytest.mark.parametrize("path", ["responses", "messages"])
def test_the_translated_call_of_a_client_that_disconnects_is_recorded(
    proxy_url: str, upstream: ScriptedUpstream, settings: Settings, path: str
) -> None:
    upstream.answer = lambda _: [chunk(1, first=True), None]
    body = {"model": "m", "messages": MESSAGES, "input": "hi", "max_tokens": 9, "stream": True}
    with httpx.stream("POST", f"{proxy_url}/rollout/r/attempt/a/v1/{path}", json=body, timeout=60) as response:
        seen = ""
        for piece in response.iter_text():
            seen += piece
            if "<1>" in seen:
                break
    eventually(lambda: read_spans(settings), what="the call is recorded")
    call = _only_call(settings)
    assert (call.http_status, list(unpack_int32(call.response_token_ids or b""))) == (499, [1])
    assert call.response_id is not None
    assert call.response_id in seen
    eventually(lambda: upstream.gone == 1, what="the upstream is told")
