"""Whatever is asked and however it is answered: what was sampled is what is recorded, and what is trained on."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.settings import Settings
from lightstream.schemas.packing import pack_float32, pack_int32
from lightstream.trainers.servers.chat_api.generation import Job
from lightstream.trainers.servers.chat_api.requests import ChatRequest
from lightstream.trainers.servers.chat_api.responses import AnswerHead
from lightstream.trainers.servers.chat_api.streaming import stream_answer
from lightstream.trainers.servers.cpu import app as policy_app
from tests.producers.llm_proxy.conftest import StartProxy
from tests.producers.llm_proxy.exact.calls import ROUTES, Answered, Asked, ask_all, draw
from tests.producers.llm_proxy.exact.compare import Tokens, assert_no_differences
from tests.producers.llm_proxy.exact.sampling import Sampled
from tests.producers.llm_proxy.exact.server import RecordingServer
from tests.producers.support import read_spans

SEED = int(os.environ.get("LIGHTSTREAM_TEST_SEED", random.SystemRandom().randrange(10**6)))
POLICY_CALLS = 60


@pytest.fixture
def model_server(settings: Settings) -> Iterator[tuple[RecordingServer, str]]:
    """A running server that keeps a record, and its base URL."""
    recording = RecordingServer(SEED)
    server = HttpServer(recording.app, settings, name="recording", port=0, setting="")
    yield recording, f"{server.start()}/v1"
    server.stop()


def _tokens(sampled: Sampled) -> Tokens:
    return (
        pack_int32(sampled.prompt_token_ids),
        pack_int32([token.token_id for token in sampled.tokens]),
        pack_float32([token.logprob for token in sampled.tokens]),
    )


def _assert_agents_read_what_was_said(asked: Asked, answered: Answered, sampled: list[Sampled]) -> None:
    assert answered.texts == [choice.text for choice in sampled]
    if asked.route == "messages":  # which gives the arguments as an object
        said = [[(name, json.loads(text)) for name, text in choice.tool_calls] for choice in sampled]
        heard = [
            [(name, json.loads(text) if isinstance(text, str) else text) for name, text in calls]
            for calls in answered.tool_calls
        ]
        assert heard == said
    else:
        assert answered.tool_calls == [choice.tool_calls for choice in sampled]


@pytest.mark.parametrize("count", [1000, pytest.param(10_000, marks=pytest.mark.soak)])
def test_what_was_sampled_is_recorded_and_assembled_whatever_was_asked(
    start_proxy: StartProxy, model_server: tuple[RecordingServer, str], settings: Settings, count: int
) -> None:
    """Streaming, tools, structured output and several choices in any combination, over every interface."""
    print(f"seed {SEED} (set LIGHTSTREAM_TEST_SEED to repeat)")
    recording, upstream_url = model_server
    calls = [draw(number, SEED) for number in range(count)]
    assert {call.route for call in calls} == set(ROUTES)
    answers = asyncio.run(ask_all(start_proxy(llm_upstream_url=upstream_url), calls))
    for asked, answered in zip(calls, answers, strict=True):
        sampled = recording.record[asked.server_id]
        _assert_agents_read_what_was_said(asked, answered, sampled)
    spans = read_spans(settings)
    sampled_tokens = {
        (response_id, choice.index): _tokens(choice)
        for response_id, choices in recording.record.items()
        for choice in choices
    }
    assert_no_differences(sampled_tokens, spans)


def test_what_the_policy_server_sampled_is_recorded_and_assembled(
    policy: str, start_proxy: StartProxy, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own record: what its engine sampled for each answer."""
    print(f"seed {SEED} (set LIGHTSTREAM_TEST_SEED to repeat)")
    jobs: dict[str, Job] = {}

    def noted(answer: Callable[..., Any]) -> Callable[..., Any]:
        def note(head: AnswerHead, request: ChatRequest, job: Job, *rest: Any) -> Any:
            jobs[head.response_id] = job
            return answer(head, request, job, *rest)

        return note

    monkeypatch.setattr(policy_app, "stream_answer", noted(stream_answer))
    for path, interface in policy_app.INTERFACES.items():
        monkeypatch.setitem(policy_app.INTERFACES, path, replace(interface, whole=noted(interface.whole)))
    calls = [draw(number, SEED) for number in range(POLICY_CALLS)]
    proxy_url = start_proxy(llm_upstream_url=f"{policy}/v1")
    # It refuses structured output, and may call no tools by itself; that is the tests' server's part.
    asyncio.run(ask_all(proxy_url, [replace(call, structured=False, model="policy") for call in calls]))
    assert len(jobs) == len(calls)
    sampled_tokens: dict[tuple[str, int], Tokens] = {
        (response_id, index): (pack_int32(g.prompt_ids), pack_int32(g.token_ids), pack_float32(g.logprobs))
        for response_id, job in jobs.items()
        for index, g in enumerate(job.generations)
    }
    assert_no_differences(sampled_tokens, read_spans(settings))
