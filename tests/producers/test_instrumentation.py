"""Automatic instrumentation, with the real libraries against a real server."""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import litellm
import openai
import pytest

from lightstream.producers import LitAgent, OtelTracer, Runner, emit_reward, instrument, operation, uninstrument
from lightstream.producers.instrumentation import INSTRUMENTORS, instrumented
from lightstream.runtime.http.server import HttpServer
from lightstream.runtime.settings import Settings
from lightstream.schemas.errors import SettingsError
from lightstream.schemas.packing import unpack_float32, unpack_int32
from lightstream.schemas.records import SpanRecord
from lightstream.stream_processors.core.dialects import ReadCall, read_calls
from tests.producers.llm_proxy.upstreams import ScriptedUpstream, chunk, completion
from tests.producers.support import ListStore

SpansInLog = Callable[[], list[SpanRecord]]
MESSAGES: Any = [{"role": "user", "content": "hello"}]


@pytest.fixture
def upstream() -> ScriptedUpstream:
    """Gives each answer an id of its own."""
    scripted = ScriptedUpstream()

    def answer(request: Any) -> Any:
        number = len(scripted.asked)
        if request.get("stream"):
            return [chunk(token, first=token == 7) | {"id": f"c-{number}"} for token in (7, 8)] + [
                chunk(9, finish_reason="stop") | {"id": f"c-{number}"},
                b"[DONE]",
            ]
        return completion(id=f"c-{number}", object="chat.completion", created=1)

    scripted.answer = answer
    return scripted


@pytest.fixture
def base_url(upstream: ScriptedUpstream, settings: Settings) -> Iterator[str]:
    server = HttpServer(upstream.app, settings, name="upstream", port=0, setting="")
    yield f"{server.start()}/v1"
    server.stop()


@pytest.fixture(autouse=True)
def nothing_stays_instrumented() -> Iterator[None]:
    yield
    uninstrument()


def calls_in(spans: list[SpanRecord]) -> list[tuple[SpanRecord, ReadCall]]:
    """What the dialects make of the log."""
    return [(span, call) for span in spans for call in read_calls(span)]


def test_a_call_of_the_openai_sdk_arrives_whole(tracer: OtelTracer, base_url: str, spans_in_log: SpansInLog) -> None:
    assert "openai" in instrument(["openai"])
    client = openai.OpenAI(base_url=base_url, api_key="none", max_retries=0)
    with tracer.trace_context(rollout_id="r", attempt_id="a"), operation() as op:
        client.chat.completions.create(model="m", messages=MESSAGES, logprobs=True)
    ((span, call),) = calls_in(spans_in_log())
    assert (span.rollout_id, span.attempt_id, span.parent_id) == ("r", "a", op.span().span_id)
    assert (call.dialect, call.response_id, call.problem) == ("openinference", "c-1", None)
    assert call.prompt_token_ids is not None
    assert call.response_token_ids is not None
    assert call.response_logprobs is not None
    assert list(unpack_int32(call.prompt_token_ids)) == [1, 2, 3]
    assert list(unpack_int32(call.response_token_ids)) == [7, 8]
    assert list(unpack_float32(call.response_logprobs)) == [-0.5, -0.5]


def test_attempts_at_once_keep_their_calls(tracer: OtelTracer, base_url: str, spans_in_log: SpansInLog) -> None:
    """Streamed or not, twelve agents at once; each rewards its own call by the id it was answered with."""
    instrument(["openai"])
    rollouts = [f"r{number}" for number in range(12)]

    async def agent(rollout: str, client: openai.AsyncOpenAI) -> str:
        async with tracer.trace_context(rollout_id=rollout, attempt_id="a"):
            if int(rollout[1:]) % 2:
                answer = await client.chat.completions.create(model="m", messages=MESSAGES)
                response_id = answer.id
            else:
                stream = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
                response_id = [piece.id async for piece in stream][-1]
            emit_reward(1.0, link={"gen_ai.response.id": response_id})
        return response_id

    async def main() -> dict[str, str]:
        async with openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
            return dict(zip(rollouts, await asyncio.gather(*(agent(r, client) for r in rollouts)), strict=True))

    answered = asyncio.run(main())
    found = {str(span.rollout_id): call for span, call in calls_in(spans_in_log())}
    assert found.keys() == answered.keys()
    unstreamed = {rollout: call.response_id for rollout, call in found.items() if int(rollout[1:]) % 2}
    assert unstreamed == {rollout: answered[rollout] for rollout in unstreamed}


def test_a_failed_call_is_a_span_too(
    tracer: OtelTracer, base_url: str, upstream: ScriptedUpstream, spans_in_log: SpansInLog
) -> None:
    instrument(["openai"])
    upstream.answer = lambda _request: {"error": "not an answer"}
    client = openai.OpenAI(base_url=f"{base_url}/nowhere", api_key="none", max_retries=0)
    with tracer.trace_context(rollout_id="r", attempt_id="a"), pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="m", messages=MESSAGES)
    (span,) = spans_in_log()
    assert (span.rollout_id, span.status) == ("r", "error")


def test_litellm_is_seen(tracer: OtelTracer, base_url: str, spans_in_log: SpansInLog) -> None:
    instrument(["litellm"])
    with tracer.trace_context(rollout_id="r", attempt_id="a"):
        litellm.completion(model="openai/m", messages=MESSAGES, api_base=base_url, api_key="none", num_retries=0)
    ((span, _),) = calls_in(spans_in_log())
    assert span.rollout_id == "r"


def test_all_that_is_installed_is_switched_on_and_off(
    tracer: OtelTracer, base_url: str, spans_in_log: SpansInLog
) -> None:
    on = instrument()
    assert {"openai", "litellm"} <= set(on)
    assert instrument() == instrumented() == on
    uninstrument(["litellm"])
    assert "litellm" not in instrumented()
    uninstrument()
    assert instrumented() == []
    client = openai.OpenAI(base_url=base_url, api_key="none", max_retries=0)
    with tracer.trace_context(rollout_id="r", attempt_id="a"):
        client.chat.completions.create(model="m", messages=MESSAGES)
    assert spans_in_log() == []


LATER = """
import sys
from lightstream.producers import instrument, uninstrument
from lightstream.producers.instrumentation.switch import _running
assert "openai" in instrument() and "litellm" in instrument()
assert not {"openai", "litellm"} & set(sys.modules)
uninstrument(["litellm"])
import openai
assert list(_running) == ["openai"] and _running["openai"].is_instrumented_by_opentelemetry
import litellm
assert list(_running) == ["openai"]
"""


def test_a_library_is_instrumented_once_it_is_imported() -> None:
    """And not imported for that."""
    subprocess.run([sys.executable, "-c", LATER], timeout=120, check=True)


def test_what_is_unknown_or_not_installed_says_so() -> None:
    with pytest.raises(SettingsError, match=r"no instrumentor 'opanai'.*anthropic, autogen, crewai"):
        instrument(["opanai"])
    with pytest.raises(SettingsError, match="openinference-instrumentation-autogen-agentchat, which is not installed"):
        instrument(["autogen"])
    assert instrumented() == []


@pytest.mark.parametrize(
    ("asked", "on"),
    [("none", []), (False, []), ("openai, litellm", ["litellm", "openai"]), (["litellm"], ["litellm"])],
)
def test_a_runner_instruments_what_it_is_asked_to(
    settings: Settings, asked: bool | str | list[str], on: list[str]
) -> None:
    if isinstance(asked, str):
        runner = Runner(ListStore(), LitAgent[Any](), settings=settings.model_copy(update={"instrument": asked}))
    else:
        runner = Runner(ListStore(), LitAgent[Any](), settings=settings, instrument=asked)
    asyncio.run(runner.run(max_rollouts=0))
    assert instrumented() == on


def test_a_runner_instruments_everything_unless_told_otherwise(settings: Settings) -> None:
    asyncio.run(Runner(ListStore(), LitAgent[Any](), settings=settings).run(max_rollouts=0))
    assert {"openai", "langchain", "pydantic-ai"} <= set(instrumented())
    with pytest.raises(SettingsError, match="no instrumentor 'opanai'"):
        asyncio.run(Runner(ListStore(), LitAgent[Any](), settings=settings, instrument=["opanai"]).run())


def test_every_instrumentor_is_where_the_registry_says() -> None:
    """Where its package is installed; importing it needs the library, which may not be."""
    for each in INSTRUMENTORS.values():
        if each.name == "autogen":
            continue  # asks for an older protobuf than the gateway's, so it is in an extra of its own
        spec = importlib.util.find_spec(each.module)
        assert spec is not None, each
        assert spec.origin is not None
        with open(spec.origin, encoding="utf-8") as source:
            assert f"class {each.class_name}" in source.read(), each
