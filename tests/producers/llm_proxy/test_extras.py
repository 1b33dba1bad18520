"""Servers that refuse token ids or log-probabilities: only what was refused is left out, for a while, and on record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from starlette.responses import Response

from lightstream.producers.llm_proxy.extras import REMEMBERED_S, Extras
from lightstream.producers.llm_proxy.upstream import UpstreamAnswer
from lightstream.runtime.settings import Settings
from tests.producers.llm_proxy.recorded import only_record
from tests.producers.llm_proxy.upstreams import ScriptedUpstream, completion

LOGPROBS = b'{"error": {"message": "logprobs is not supported with tools + stream"}}'
IDS = b'{"error": {"message": "body.return_token_ids: Extra inputs are not permitted"}}'
QUOTING = (
    b'{"error": {"message": "temperature must be at most 2"}, "body": {"logprobs": true, "return_token_ids": true}}'
)
BOTH = {"logprobs", "return_token_ids"}


class Clock:
    def __init__(self) -> None:
        self.now_s = 1e9

    def now_unix_nano(self) -> int:
        return int(self.now_s * 1e9)


class Server:
    """Refuses as ``refuse`` says: given the extras of a request, status and body, or ``None``."""

    def __init__(self, refuse: Callable[[set[str]], tuple[int, bytes] | None]) -> None:
        self.refuse = refuse
        self.asked: list[set[str]] = []
        self.clock = Clock()
        self.extras = Extras(self.clock)

    async def _ask(self, request: dict[str, Any]) -> UpstreamAnswer:
        extras = BOTH & request.keys()
        self.asked.append(extras)
        refused = self.refuse(extras)
        return UpstreamAnswer(200, body=b"{}") if refused is None else UpstreamAnswer(refused[0], body=refused[1])

    def call(self, **request: Any) -> tuple[int, set[str], list[set[str]]]:
        """Status, what was left out, and the extras of each request that was made."""
        self.asked = []
        asked = {"model": "m"} | request
        answer, left_out = asyncio.run(self.extras.ask(self._ask, "chat/completions", asked, streams=False))
        return answer.status, set(left_out), self.asked


@pytest.mark.parametrize("status", [400, 422, 500])
@pytest.mark.parametrize(("body", "refused"), [(LOGPROBS, "logprobs"), (IDS, "return_token_ids")])
def test_only_the_extra_that_is_named_is_left_out(status: int, body: bytes, refused: str) -> None:
    server = Server(lambda extras: (status, body) if refused in extras else None)
    assert server.call() == (200, {refused}, [BOTH, BOTH - {refused}])
    assert server.call() == (200, {refused}, [BOTH - {refused}])


def test_requests_of_another_shape_are_asked_with_all() -> None:
    server = Server(lambda _: None)
    server.refuse = lambda extras: (400, LOGPROBS) if "logprobs" in extras else None
    server.call(tools=[])
    server.refuse = lambda _: None
    assert server.call() == (200, set(), [BOTH])
    assert server.call(tools=[]) == (200, {"logprobs"}, [BOTH - {"logprobs"}])


def test_a_refusal_is_forgotten_after_a_while() -> None:
    server = Server(lambda extras: (400, IDS) if "return_token_ids" in extras else None)
    server.call()
    server.refuse = lambda _: None
    server.clock.now_s += REMEMBERED_S + 1
    assert server.call() == (200, set(), [BOTH])


def test_an_error_that_quotes_its_request_refuses_nothing() -> None:
    server = Server(lambda _: (400, QUOTING))
    status, _, asked = server.call()
    assert (status, asked[0], asked[-1]) == (400, BOTH, set())
    server.refuse = lambda _: None
    assert server.call() == (200, set(), [BOTH])


def test_an_error_that_quotes_its_request_costs_no_other_extra() -> None:
    body = b'{"error": "bad logprobs", "body": {"logprobs": true, "return_token_ids": true}}'
    server = Server(lambda extras: (400, body) if "logprobs" in extras else None)
    assert server.call()[:2] == (200, {"logprobs"})


def test_replicas_that_differ_are_each_asked() -> None:
    server = Server(lambda _: None)
    server.call()
    server.refuse = lambda extras: (400, IDS) if "return_token_ids" in extras else None
    assert server.call()[:2] == (200, {"return_token_ids"})
    server.refuse = lambda _: None
    assert server.call() == (200, set(), [BOTH])


def test_what_was_not_asked_for_and_why_is_on_the_record(
    proxy_url: str, upstream: ScriptedUpstream, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    refusal = Response(LOGPROBS, 400, media_type="application/json")
    upstream.answer = lambda asked: refusal if "logprobs" in asked else completion()
    url = f"{proxy_url}/rollout/r/attempt/a/v1/chat/completions"
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    assert httpx.post(url, json=body, timeout=60).status_code == 200
    record, call = only_record(settings)
    (told,) = record.attributes["lightstream.proxy.not_asked_for"]
    assert told.startswith("logprobs: the LLM server refused it")
    assert "not supported with tools" in told
    assert call.response_token_ids is not None
    httpx.post(url, json=body, timeout=60)
    assert len([line for line in caplog.messages if "not asked for logprobs" in line]) == 1


@pytest.mark.parametrize(("header", "count"), [("0", None), ("2", 2), ("", None), ("many", None), ("9" * 30, None)])
def test_a_request_that_the_client_sent_again_says_so_on_the_record(
    header: str, count: int | None, proxy_url: str, upstream: ScriptedUpstream, settings: Settings
) -> None:
    upstream.answer = lambda _: completion()
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    httpx.post(
        f"{proxy_url}/rollout/r/attempt/a/v1/chat/completions",
        json=body,
        headers={"x-stainless-retry-count": header},
        timeout=60,
    ).raise_for_status()
    record, _ = only_record(settings)
    assert record.attributes.get("http.request.resend_count") == count
