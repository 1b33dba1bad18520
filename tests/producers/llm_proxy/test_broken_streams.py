"""Streams that break off, fall silent or never end, and clients that leave: the record says what was said."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
from collections.abc import AsyncGenerator, Callable
from typing import Any

import httpx
import openai
import pytest

from lightstream.producers.llm_proxy.call import Call, Caller
from lightstream.producers.llm_proxy.capture import Completion
from lightstream.producers.llm_proxy.dialects import CHAT
from lightstream.producers.llm_proxy.recording import CallRecorder
from lightstream.producers.llm_proxy.relay import StreamRelay
from lightstream.producers.llm_proxy.upstream import UpstreamAnswer, UpstreamError
from lightstream.runtime.clock import SystemClock
from lightstream.runtime.kafka import KafkaPublisher
from lightstream.runtime.settings import Settings
from lightstream.schemas.packing import unpack_int32
from tests.producers.llm_proxy.conftest import StartProxy
from tests.producers.llm_proxy.recorded import only_call
from tests.producers.llm_proxy.upstreams import ScriptedUpstream, chunk, event
from tests.producers.support import read_spans
from tests.support.waiting import eventually

MESSAGES: list[Any] = [{"role": "user", "content": "hi"}]
PATH = "/rollout/r/attempt/a/v1/chat/completions"
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
    call = only_call(settings)
    assert call.error_message
    assert list(unpack_int32(call.response_token_ids or b"")) == [1]


def test_a_stream_that_breaks_off_after_its_last_token_is_complete(settings: Settings) -> None:
    async def pieces() -> AsyncGenerator[bytes]:
        yield event(chunk(1, first=True, finish_reason="stop"))
        raise UpstreamError("gone", status=502)

    async def nothing_more(_call: Call, _so_far: Completion) -> UpstreamAnswer:
        raise AssertionError("nothing interrupts it")

    async def relayed() -> list[bytes]:
        recorder = CallRecorder(publisher, SystemClock())
        answer = UpstreamAnswer(200, pieces=pieces())
        call = Call(Caller("r", "a", "0" * 32), CHAT, translation=await CHAT.translate({}))
        relay = StreamRelay(settings, recorder, call, answer, nothing_more)
        return [piece async for piece in relay.pieces()]

    publisher = KafkaPublisher(settings)
    assert asyncio.run(relayed()) == [event(chunk(1, first=True, finish_reason="stop"))]
    publisher.close()
    assert only_call(settings).error_message is None


def test_a_stream_that_falls_silent_ends_in_an_error(
    start_proxy: StartProxy, upstream: ScriptedUpstream, settings: Settings
) -> None:
    upstream.answer = lambda _: [chunk(1, first=True), None]
    url = start_proxy(llm_request_timeout_s=0.3)
    client = openai.OpenAI(base_url=url + PATH.removesuffix("/chat/completions"), api_key="none", max_retries=0)
    with pytest.raises(openai.APIError, match=r"0.3 s"):
        list(client.chat.completions.create(model="m", messages=MESSAGES, stream=True))
    assert "0.3 s" in (only_call(settings).error_message or "")


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
    call = only_call(settings)
    assert call.http_status == 499
    assert "disconnected" in (call.error_message or "")
    assert (call.response_token_ids is not None) == streams
    eventually(lambda: upstream.gone == 1, what="the upstream is told")


def test_a_chunk_that_is_no_json_ends_the_stream_with_an_error(
    client: openai.OpenAI, upstream: ScriptedUpstream, settings: Settings
) -> None:
    upstream.answer = lambda _: [chunk(1, first=True), b"data: {half\n\n", chunk(3, finish_reason="stop")]
    with pytest.raises(openai.APIError, match="other than a JSON object"):
        list(client.chat.completions.create(model="m", messages=MESSAGES, stream=True))
    call = only_call(settings)  # not a call with a hole among its tokens
    assert "{half" in (call.error_message or "")
    assert list(unpack_int32(call.response_token_ids or b"")) == [1]


def test_text_that_is_no_utf8_is_refused_and_ends_a_stream(
    client: openai.OpenAI, proxy_url: str, upstream: ScriptedUpstream, settings: Settings
) -> None:
    body = b'{"model": "m", "messages": [{"role": "user", "content": "\xff"}]}'
    assert httpx.post(proxy_url + PATH, content=body, timeout=60).status_code == 400
    assert upstream.asked == []
    broken = event(chunk(2)).replace(b"<2>", b"\xff\xfe")
    upstream.answer = lambda _: [chunk(1, first=True), broken, chunk(3, finish_reason="stop")]
    with pytest.raises(openai.APIError, match="other than a JSON object"):
        list(client.chat.completions.create(model="m", messages=MESSAGES, stream=True))
    refused, broken_off = (record.llm_call for record in read_spans(settings))
    assert refused is not None
    assert (refused.http_status, refused.response_token_ids) == (400, None)
    assert "\ufffd" in (refused.request_json or ""), "kept as far as it is text"
    assert broken_off is not None
    assert list(unpack_int32(broken_off.response_token_ids or b"")) == [1]


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
    assert said in (only_call(settings).error_message or "")
    eventually(lambda: upstream.gone == 1, what="the upstream is told")


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
    call = only_call(settings)
    assert (call.http_status, list(unpack_int32(call.response_token_ids or b""))) == (499, [1])
    assert call.response_id is not None
    assert call.response_id in seen
    eventually(lambda: upstream.gone == 1, what="the upstream is told")
